# libtorch out of the PyPI wheel. The wheel's own TorchConfig.cmake wants a CUDA toolkit at configure time, which a
# CPU-only machine has not; this asks only for what we link: libtorch_cpu and libc10 (CUDA is loaded at run time).
#
# Input:  CAUSEWAY_TORCH_ROOT, the torch package folder (include/, lib/); default: the venv that `make deps` made.
# Output: target causeway::torch, Torch_FOUND, Torch_VERSION.
if(NOT CAUSEWAY_TORCH_ROOT)
  file(STRINGS ${CMAKE_SOURCE_DIR}/versions.env _versions REGEX "^CAUSEWAY_TORCH_VERSION=")
  string(REGEX REPLACE "^CAUSEWAY_TORCH_VERSION=" "" _torch_version "${_versions}")
  if(DEFINED ENV{XDG_CACHE_HOME})
    set(_cache $ENV{XDG_CACHE_HOME})
  else()
    set(_cache $ENV{HOME}/.cache)
  endif()
  foreach(_set full cpu)
    file(GLOB _found ${_cache}/causeway/torch-${_torch_version}-${_set}/lib/python3*/site-packages/torch)
    if(_found AND (_set STREQUAL "cpu" OR "$ENV{CAUSEWAY_GPU}" STREQUAL "1"))
      set(CAUSEWAY_TORCH_ROOT ${_found} CACHE PATH "An installed torch package" FORCE)
      break()
    endif()
  endforeach()
endif()
find_library(Torch_CPU_LIBRARY torch_cpu PATHS ${CAUSEWAY_TORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(Torch_C10_LIBRARY c10 PATHS ${CAUSEWAY_TORCH_ROOT}/lib NO_DEFAULT_PATH)
find_path(Torch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h PATHS ${CAUSEWAY_TORCH_ROOT}/include NO_DEFAULT_PATH)
if(EXISTS ${CAUSEWAY_TORCH_ROOT}/version.py)
  file(STRINGS ${CAUSEWAY_TORCH_ROOT}/version.py _line REGEX "^__version__ = ")
  string(REGEX REPLACE "^__version__ = '([^']*)'.*" "\\1" Torch_VERSION "${_line}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Torch
  REQUIRED_VARS Torch_CPU_LIBRARY Torch_C10_LIBRARY Torch_INCLUDE_DIR VERSION_VAR Torch_VERSION
  REASON_FAILURE_MESSAGE "run `make deps`, or pass -DCAUSEWAY_TORCH_ROOT=<torch package folder>")
if(Torch_FOUND AND NOT TARGET causeway::torch)
  get_filename_component(_site ${CAUSEWAY_TORCH_ROOT} DIRECTORY)
  add_library(causeway::torch INTERFACE IMPORTED)
  target_include_directories(causeway::torch SYSTEM INTERFACE
    ${Torch_INCLUDE_DIR} ${Torch_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(causeway::torch INTERFACE
    -Wl,--no-as-needed ${Torch_CPU_LIBRARY} ${Torch_C10_LIBRARY} -Wl,--as-needed)
  target_link_options(causeway::torch INTERFACE
    -Wl,-rpath,${CAUSEWAY_TORCH_ROOT}/lib -Wl,-rpath-link,${_site}/nvidia/cu13/lib)
endif()
