# Completion of hakmem. click writes the code, so that it fits the click which answers.
_HAKMEM_COMPLETE=fish_source hakmem | source
