# find_package(llmcc REQUIRED)
#
#   llmcc::llmcc      interface target for programs that open models with dlopen: llmcc.h, and the library of dlopen
#   llmcc::compiler   the compiler `llmcc`, where it is installed beside this file
#
#   llmcc_add_model(NAME FILE model.so)
#       An imported target of an artifact, to link programs with: target_link_libraries(app PRIVATE NAME).
#   llmcc_add_model(NAME CHECKPOINT folder [OUTPUT model.so] [OPTIONS --w4 ...])
#       The same, of an artifact that the build makes from a checkpoint, with options of `llmcc compile`.
#       With `--soname` the file has that name, by which programs look for it.
#
# All paths follow from where this file is, so that the prefix may be moved.

get_filename_component(_llmcc_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET llmcc::llmcc)
  add_library(llmcc::llmcc INTERFACE IMPORTED)
  set_target_properties(llmcc::llmcc PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_llmcc_prefix}/include"
    INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
endif()

if(NOT TARGET llmcc::compiler AND EXISTS "${_llmcc_prefix}/bin/llmcc")
  add_executable(llmcc::compiler IMPORTED)
  set_target_properties(llmcc::compiler PROPERTIES IMPORTED_LOCATION "${_llmcc_prefix}/bin/llmcc")
endif()

unset(_llmcc_prefix)

function(llmcc_add_model name)
  cmake_parse_arguments(PARSE_ARGV 1 model "" "FILE;CHECKPOINT;OUTPUT" "OPTIONS")
  if(model_UNPARSED_ARGUMENTS OR model_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "llmcc_add_model(${name}): give FILE model.so, or CHECKPOINT folder [OUTPUT model.so] [OPTIONS ...]; "
      "not understood: ${model_UNPARSED_ARGUMENTS} ${model_KEYWORDS_MISSING_VALUES}")
  endif()
  if(model_FILE AND NOT model_CHECKPOINT AND NOT model_OUTPUT AND NOT model_OPTIONS)
    get_filename_component(file "${model_FILE}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    if(NOT EXISTS "${file}")
      message(FATAL_ERROR "llmcc_add_model(${name}): there is no file ${file}; make it with `llmcc compile`")
    endif()
  elseif(model_CHECKPOINT AND NOT model_FILE)
    _llmcc_compile("${name}" file)
  else()
    message(FATAL_ERROR "llmcc_add_model(${name}): give either FILE model.so or CHECKPOINT folder [OUTPUT model.so] [OPTIONS ...]")
  endif()
  add_library("${name}" SHARED IMPORTED GLOBAL)
  set_target_properties("${name}" PROPERTIES IMPORTED_LOCATION "${file}")
  target_link_libraries("${name}" INTERFACE llmcc::llmcc)
  if(TARGET "${name}_compile")
    add_dependencies("${name}" "${name}_compile")
  endif()
endfunction()

# The name that `--soname` in the options of llmcc_add_model gives an artifact, in `result`; empty without the option.
function(_llmcc_soname name result)
  set(soname "")
  string(REPLACE ";" " " options "${model_OPTIONS}")
  if(options MATCHES "(^| )--soname[ =]([^ ]+)")
    set(soname "${CMAKE_MATCH_2}")
  endif()
  if(soname STREQUAL "auto" AND model_OUTPUT)
    # The compiler takes the name from that of the file, up to `.so`.
    get_filename_component(stem "${model_OUTPUT}" NAME)
    string(REGEX REPLACE "\\.so(\\..*)?$" "" stem "${stem}")
    string(REGEX REPLACE "^lib" "" name "${stem}")
  endif()
  if(soname STREQUAL "auto")
    get_target_property(include llmcc::llmcc INTERFACE_INCLUDE_DIRECTORIES)
    file(STRINGS "${include}/llmcc.h" version REGEX "^#define LLMCC_ABI_VERSION 0x")
    string(REGEX MATCH "0x[0-9a-fA-F]+" version "${version}")
    math(EXPR major "${version} >> 16")
    set(soname "lib${name}.so.${major}")
  endif()
  set(${result} "${soname}" PARENT_SCOPE)
endfunction()

# A rule that compiles the checkpoint of llmcc_add_model, whose arguments it sees; the path of the artifact in `result`.
function(_llmcc_compile name result)
  if(NOT TARGET llmcc::compiler)
    message(FATAL_ERROR "llmcc_add_model(${name}): CHECKPOINT needs the compiler, which is not installed beside this package; give FILE")
  endif()
  get_filename_component(checkpoint "${model_CHECKPOINT}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
  if(NOT EXISTS "${checkpoint}")
    message(FATAL_ERROR "llmcc_add_model(${name}): there is no checkpoint ${checkpoint}")
  endif()
  _llmcc_soname("${name}" soname)
  if(NOT model_OUTPUT)
    set(model_OUTPUT "${name}.so")
    if(soname)
      set(model_OUTPUT "${soname}")
    endif()
  endif()
  get_filename_component(file "${model_OUTPUT}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  get_filename_component(called "${file}" NAME)
  if(soname AND NOT called STREQUAL soname)
    message(FATAL_ERROR "llmcc_add_model(${name}): programs would look for ${soname}, as --soname says, "
      "and not for ${called}; leave OUTPUT out, or let its name be ${soname}")
  endif()
  file(GLOB_RECURSE inputs CONFIGURE_DEPENDS LIST_DIRECTORIES false "${checkpoint}/*")
  if(NOT IS_DIRECTORY "${checkpoint}")
    set(inputs "${checkpoint}")
  endif()
  add_custom_command(
    OUTPUT "${file}"
    COMMAND llmcc::compiler compile "${checkpoint}" ${model_OPTIONS} --quiet -o "${file}"
    DEPENDS ${inputs} llmcc::compiler
    COMMENT "Compiling the model ${name}"
    VERBATIM)
  add_custom_target("${name}_compile" DEPENDS "${file}")
  set(${result} "${file}" PARENT_SCOPE)
endfunction()
