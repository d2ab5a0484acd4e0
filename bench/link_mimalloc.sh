#!/bin/sh
# link_mimalloc.sh LIBRARY FOLDER: makes links to mimalloc in FOLDER, by the name with which programs are linked,
# libmimalloc.so, and by the one under which they look for it, which the library has in it.
set -eu
library=$1 folder=$2

if [ ! -f "$library" ]; then
    echo "there is no $library; './hakmem peers build mimalloc2' makes it, or name another by MIMALLOC=FILE" >&2
    exit 1
fi
name=$(objdump -p "$library" | sed -n 's/^ *SONAME *//p')
mkdir -p "$folder"
ln -sf "$library" "$folder/libmimalloc.so"
[ -z "$name" ] || ln -sf "$library" "$folder/$name"
