# cmake -DPROGRAM=... [-DEMULATOR=...] -DFOLDER=... -P: writes what the program prints for each shell to a file of the folder, or nothing if
# it does not run here.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
foreach(shell bash zsh fish)
  execute_process(COMMAND ${EMULATOR} ${PROGRAM} completion ${shell} OUTPUT_VARIABLE script RESULT_VARIABLE result ERROR_VARIABLE error)
  if(NOT result EQUAL 0)
    message(STATUS "No completion for ${shell}: the program does not run here (${result}) ${error}")
    continue()
  endif()
  if(shell STREQUAL zsh)
    string(APPEND script "_frit \"$@\"\n")  # zsh runs the file as the function at its first use
  endif()
  file(WRITE ${FOLDER}/${shell} "${script}")
endforeach()
file(TOUCH ${FOLDER}/stamp)
