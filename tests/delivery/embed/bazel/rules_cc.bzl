# What rules_cc is to a Bazel that has the C++ rules in itself: names for them. Debian's rules_cc wants a newer Bazel than
# Debian's.
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite

def cc_flags_supplier(**_kwargs):
    pass

def compiler_flag(**_kwargs):
    pass
