# What the shell of `./hakmem shell` reads at its start: the user's own file, and then what that may have changed.
checkout_path=$PATH
if [[ -r ~/.bashrc ]]; then
    source ~/.bashrc
fi
PATH=$checkout_path
unset checkout_path
PS1="(hakmem) $PS1"
eval "$(hakmem completion bash)"
