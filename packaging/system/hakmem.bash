# Completion of hakmem. click writes the code, so that it fits the click which answers.
eval "$(_HAKMEM_COMPLETE=bash_source hakmem)"
