# One static library per part of a room, the edges between them checked here; one test binary per part.
# docs/contributing.md explains the rooms; tests/lint checks that #includes obey the same table.

add_library(causeway_warnings INTERFACE)
target_compile_options(causeway_warnings INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Werror=thread-safety>)
if(CAUSEWAY_SANITIZE)
  add_compile_options(-fsanitize=${CAUSEWAY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1)
  add_link_options(-fsanitize=${CAUSEWAY_SANITIZE})
  if(CAUSEWAY_SANITIZE STREQUAL "thread")
    add_compile_definitions(CAUSEWAY_WAIT_BY_WALL_CLOCK)  # base/mutex.h
    # protobuf's headers give maps more fields under this macro than the system's libprotobuf, built without it, knows of.
    add_compile_options(-U__SANITIZE_THREAD__)
  endif()
endif()
if(CAUSEWAY_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # Every file tells libFuzzer which way it went.
endif()

# Which of our targets each target may use. An edge outside the table stops the configure step.
set(CAUSEWAY_EDGES_base "")
set(CAUSEWAY_EDGES_proto "")
set(CAUSEWAY_EDGES_proto_grpc proto)
set(CAUSEWAY_EDGES_scheduler "")
set(CAUSEWAY_EDGES_scheduler_proto scheduler proto)
set(CAUSEWAY_EDGES_jobspec base proto)
set(CAUSEWAY_EDGES_dataplane base proto)
set(CAUSEWAY_EDGES_dataplane_grpc base proto proto_grpc dataplane)
set(_core base proto dataplane jobspec scheduler scheduler_proto)
set(CAUSEWAY_EDGES_server ${_core})
set(CAUSEWAY_EDGES_server_grpc ${_core} proto_grpc dataplane_grpc server)
set(CAUSEWAY_EDGES_worker ${_core})
set(CAUSEWAY_EDGES_worker_grpc ${_core} proto_grpc dataplane_grpc worker worker_torch)
set(CAUSEWAY_EDGES_worker_torch base worker)
set(CAUSEWAY_EDGES_backup base proto dataplane jobspec)
set(CAUSEWAY_EDGES_cli ${_core} backup)
set(CAUSEWAY_EDGES_cli_grpc ${_core} proto_grpc dataplane_grpc cli)
set(CAUSEWAY_EDGES_fakes ${_core} worker server cli)
set(CAUSEWAY_EDGES_fakes_worker ${_core} worker)
set(CAUSEWAY_EDGES_fakes_dataplane base proto dataplane)

# causeway_add_library(NAME SRCS... [DEPS ours...] [LIBS third-party PUBLIC...] [PRIVATE_LIBS third-party...])
# NAME is without the causeway_ prefix; DEPS likewise, and are PUBLIC.
function(causeway_add_library NAME)
  cmake_parse_arguments(A "" "" "SRCS;DEPS;LIBS;PRIVATE_LIBS" ${ARGN})
  if(NOT DEFINED CAUSEWAY_EDGES_${NAME})
    message(FATAL_ERROR "causeway_${NAME} is not in the table of edges (cmake/CausewayRooms.cmake)")
  endif()
  foreach(dep ${A_DEPS})
    if(NOT dep IN_LIST CAUSEWAY_EDGES_${NAME})
      message(FATAL_ERROR "causeway_${NAME} may not use causeway_${dep}: the edge is not in cmake/CausewayRooms.cmake")
    endif()
  endforeach()
  add_library(causeway_${NAME} STATIC ${A_SRCS})
  target_include_directories(causeway_${NAME} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  list(TRANSFORM A_DEPS PREPEND causeway_)
  target_link_libraries(causeway_${NAME} PUBLIC ${A_DEPS} ${A_LIBS} PRIVATE causeway_warnings ${A_PRIVATE_LIBS})
endfunction()

# causeway_add_binary(OUTPUT SRCS... DEPS ours... [LIBS ...]): an executable in build/bin.
function(causeway_add_binary NAME)
  cmake_parse_arguments(A "" "" "SRCS;DEPS;LIBS" ${ARGN})
  add_executable(${NAME} ${A_SRCS})
  list(TRANSFORM A_DEPS PREPEND causeway_)
  target_link_libraries(${NAME} PRIVATE ${A_DEPS} ${A_LIBS} causeway_warnings)
endfunction()

# causeway_add_bench(NAME_bench SRCS... DEPS ours... [LIBS ...]): a Google Benchmark program, run by `make bench`. The sanitizer
# builds have none.
function(causeway_add_bench NAME)
  cmake_parse_arguments(A "" "" "SRCS;DEPS;LIBS" ${ARGN})
  if(NOT NAME MATCHES "_bench$")
    message(FATAL_ERROR "${NAME}: `make bench` looks for names that end in _bench")
  endif()
  if(NOT CAUSEWAY_SANITIZE)
    causeway_add_binary(${NAME} SRCS ${A_SRCS} DEPS ${A_DEPS} LIBS ${A_LIBS} benchmark::benchmark benchmark::benchmark_main)
  endif()
endfunction()

# Tests with these labels start real processes; the sanitizer builds leave them out.
set(CAUSEWAY_PROCESS_LABELS e2e netns peers python device)

# causeway_add_test(NAME SRCS... DEPS ours... [LIBS ...] [LABELS ...] [TIMEOUT seconds] [RESOURCE_LOCK name])
# One GoogleTest binary; ctest sees one entry per test case, so that counts mean cases. Several labels become one, "a,b", which
# `ctest -L a` and `-L b` both match: gtest_discover_tests loses all but the first of a list.
function(causeway_add_test NAME)
  cmake_parse_arguments(A "" "TIMEOUT;RESOURCE_LOCK" "SRCS;DEPS;LIBS;LABELS" ${ARGN})
  causeway_skip_tests(${A_SRCS})
  if(NOT CAUSEWAY_TESTS)
    return()
  endif()
  if(CAUSEWAY_SANITIZE)
    foreach(label ${A_LABELS})
      if(label IN_LIST CAUSEWAY_PROCESS_LABELS)
        return()
      endif()
    endforeach()
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 60)
  endif()
  add_executable(${NAME} ${A_SRCS})
  # The tests' own code need not be fast, and compiles in half the time.
  target_compile_options(${NAME} PRIVATE -O0)
  list(TRANSFORM A_DEPS PREPEND causeway_)
  target_link_libraries(${NAME} PRIVATE ${A_DEPS} ${A_LIBS} GTest::gmock GTest::gtest GTest::gtest_main causeway_warnings)
  target_compile_definitions(${NAME} PRIVATE CAUSEWAY_SOURCE_DIR="${CMAKE_SOURCE_DIR}" CAUSEWAY_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  set(properties TIMEOUT ${A_TIMEOUT})
  if(A_LABELS)
    list(JOIN A_LABELS "," label)
    list(APPEND properties LABELS ${label})
  endif()
  if(A_RESOURCE_LOCK)
    list(APPEND properties RESOURCE_LOCK ${A_RESOURCE_LOCK})
  endif()
  include(GoogleTest)
  gtest_discover_tests(${NAME} TEST_PREFIX ${NAME}. PROPERTIES ${properties} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60)
endfunction()

# causeway_add_script_test(NAME LABELS... COMMAND... [CONFIGURATIONS ...]): a test that is a script. It skips by writing `SKIPPED: reason` and
# exiting with 77. One with configurations runs only when ctest is told one of them (ctest -C faults).
function(causeway_add_script_test NAME)
  cmake_parse_arguments(A "" "TIMEOUT;RESOURCE_LOCK" "LABELS;COMMAND;CONFIGURATIONS" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 60)
  endif()
  add_test(NAME ${NAME} COMMAND ${A_COMMAND} CONFIGURATIONS ${A_CONFIGURATIONS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${A_TIMEOUT} SKIP_RETURN_CODE 77 LABELS "${A_LABELS}" RESOURCE_LOCK "${A_RESOURCE_LOCK}")
endfunction()

# Registers test sources that this configuration leaves out (no gRPC, no libtorch), so that none is forgotten in all of them.
function(causeway_skip_tests)
  foreach(src ${ARGN})
    set_property(GLOBAL APPEND PROPERTY CAUSEWAY_TEST_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/${src})
  endforeach()
endfunction()

# A *_test.cc on disk that is in no target stops the configure step.
function(causeway_check_tests_registered)
  get_property(known GLOBAL PROPERTY CAUSEWAY_TEST_SOURCES)
  foreach(room base proto jobspec scheduler dataplane backup server worker cli tests)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${room}/*_test.cc)
    foreach(src ${found})
      if(NOT src IN_LIST known)
        message(FATAL_ERROR "${src} is in no test target (causeway_add_test)")
      endif()
    endforeach()
  endforeach()
endfunction()
