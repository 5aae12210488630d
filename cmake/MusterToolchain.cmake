# Compiler, linker and warning settings shared by every target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# -O2 rather than -O3: kernels are vectorised by hand, and compile time matters on small machines.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(MUSTER_CCACHE ccache)
if(MUSTER_CCACHE)
  # ccache accepts precompiled headers only with these relaxations, which the sources satisfy: no
  # __DATE__ or __TIME__ is used.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${MUSTER_CCACHE})
endif()

# Settings every target gets by linking muster_flags.
add_library(muster_flags INTERFACE)
target_include_directories(muster_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
# No contraction: the same update gives the same bits on every worker (docs/design.md, Numbers).
# -pthread everywhere, as gRPC brings it, so that one precompiled header fits all.
target_compile_options(muster_flags INTERFACE -ffp-contract=off -fpch-preprocess -pthread
                       -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
                       -Wnon-virtual-dtor -Werror=switch -Werror=return-type)
if(MUSTER_WERROR)
  target_compile_options(muster_flags INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(muster_flags INTERFACE -Wthread-safety -Werror=thread-safety
                         -Wno-deprecated-builtins -Wno-unknown-warning-option)
endif()

find_program(MUSTER_MOLD mold)
if(MUSTER_MOLD AND NOT MUSTER_SANITIZE)
  target_link_options(muster_flags INTERFACE -fuse-ld=mold)
endif()

if(MUSTER_SANITIZE)
  target_compile_options(muster_flags INTERFACE -fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(muster_flags INTERFACE -fsanitize=${MUSTER_SANITIZE})
  if(MUSTER_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # It warns of fences, which it can't follow; ours order accesses to other processes' memory only.
    target_compile_options(muster_flags INTERFACE -Wno-tsan)
  endif()
endif()
