# libtorch out of the PyPI wheel. The wheel's own TorchConfig.cmake wants a CUDA toolkit at configure time, which a
# CPU-only machine has not; this asks only for what we link: libtorch_cpu and libc10 (CUDA is loaded at run time).
#
# Input:  CAUSEWAY_TORCH_ROOT, the torch package folder (include/, lib/); default: the venv that `make deps` made.
# Output: target causeway::torch, Torch_FOUND, Torch_VERSION.
set(_torch_root ${CAUSEWAY_TORCH_ROOT})
if(NOT _torch_root)
  set(_torch_set cpu)
  if("$ENV{CAUSEWAY_GPU}" STREQUAL "1")
    set(_torch_set full)
  endif()
  file(GLOB _torch_root ${CAUSEWAY_CACHE_DIR}/torch-${CAUSEWAY_TORCH_VERSION}-${_torch_set}/lib/python3*/site-packages/torch)
endif()
if(NOT "${_torch_root}" STREQUAL "${_CAUSEWAY_TORCH_ROOT_USED}")
  unset(Torch_CPU_LIBRARY CACHE)
  unset(Torch_C10_LIBRARY CACHE)
  unset(Torch_INCLUDE_DIR CACHE)
  set(_CAUSEWAY_TORCH_ROOT_USED "${_torch_root}" CACHE INTERNAL "")
endif()
find_library(Torch_CPU_LIBRARY torch_cpu PATHS ${_torch_root}/lib NO_DEFAULT_PATH)
find_library(Torch_C10_LIBRARY c10 PATHS ${_torch_root}/lib NO_DEFAULT_PATH)
find_path(Torch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h PATHS ${_torch_root}/include NO_DEFAULT_PATH)
if(EXISTS ${_torch_root}/version.py)
  file(STRINGS ${_torch_root}/version.py _line REGEX "^__version__ = ")
  string(REGEX REPLACE "^__version__ = '([^']*)'.*" "\\1" Torch_VERSION "${_line}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Torch
  REQUIRED_VARS Torch_CPU_LIBRARY Torch_C10_LIBRARY Torch_INCLUDE_DIR VERSION_VAR Torch_VERSION
  REASON_FAILURE_MESSAGE "run `make deps`, or pass -DCAUSEWAY_TORCH_ROOT=<torch package folder>")
if(Torch_FOUND AND NOT TARGET causeway::torch)
  get_filename_component(_site ${_torch_root} DIRECTORY)
  add_library(causeway::torch INTERFACE IMPORTED)
  # After the system's headers: the wheel ships an old google/protobuf, which must not hide the one that our messages need.
  target_compile_options(causeway::torch INTERFACE
    "SHELL:-idirafter ${Torch_INCLUDE_DIR}" "SHELL:-idirafter ${Torch_INCLUDE_DIR}/torch/csrc/api/include")
  target_link_libraries(causeway::torch INTERFACE
    -Wl,--no-as-needed ${Torch_CPU_LIBRARY} ${Torch_C10_LIBRARY} -Wl,--as-needed)
  target_link_options(causeway::torch INTERFACE
    -Wl,-rpath,${_torch_root}/lib -Wl,-rpath-link,${_site}/nvidia/cu13/lib)
endif()
