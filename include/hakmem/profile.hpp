/*
 * hakmem::profile_scope keeps labels of the heap profile (profile.h) in force for a block of code:
 *
 *     hakmem::profile_scope scope("tenant", tenant.name());
 *     scope.label("rows", count);
 *
 * Needs C++17 or newer, and calls the public C interface alone. HAK_PROFILE_WEAK is as in profile.h.
 */
#ifndef HAKMEM_PROFILE_HPP
#define HAKMEM_PROFILE_HPP

#if __cplusplus < 201703L
#error "hakmem/profile.hpp needs C++17 or newer"
#endif

#include <cstdint>
#include <string>
#include <type_traits>

#include <hakmem/profile.h>

namespace hakmem {

/* A scope of the thread that makes it. Labels set in it in any way end with it. A thread's scopes must end in that
 * thread, in the reverse order of their beginning. */
class profile_scope {
public:
    profile_scope() noexcept : scope_(hak_profile_scope_begin()) {}

    template <class Value>
    profile_scope(const char *key, const Value &value, const char *unit = nullptr) noexcept : profile_scope()
    {
        label(key, value, unit);
    }

    ~profile_scope() { hak_profile_scope_end(scope_); }

    profile_scope(const profile_scope &) = delete;
    profile_scope &operator=(const profile_scope &) = delete;

    /* value: an integer or enumeration, with a unit or not; a C string; a std::string. Returns as hak_profile_label. */
    template <class Value>
    int label(const char *key, const Value &value, [[maybe_unused]] const char *unit = nullptr) noexcept
    {
        if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>)
            return hak_profile_label_number(key, static_cast<std::int64_t>(value), unit);
        else
            return hak_profile_label(key, text_of(value));
    }

private:
    static const char *text_of(const char *text) noexcept { return text; }
    static const char *text_of(const std::string &text) noexcept { return text.c_str(); }

    unsigned scope_;
};

}

#endif
