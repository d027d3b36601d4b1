// A model that is opened by its path, in C++17: owners of its handles, and exceptions with its messages.
#pragma once

#include <llmcc.h>

#include <dlfcn.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace example {

class Model {
public:
    explicit Model(const std::string &path) : library_(dlopen(file(path).c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (!library_) throw std::runtime_error(dlerror());
        const auto version = find<decltype(&llmcc_abi_version)>("llmcc_abi_version")();
        if (version >> 16 != LLMCC_ABI_VERSION >> 16 || version < LLMCC_ABI_VERSION)
            throw std::runtime_error(path + " speaks version " + name(version) + " of the C API, this program " +
                                     name(LLMCC_ABI_VERSION) + ": compile the model again");
        last_error_ = find<decltype(&llmcc_last_error)>("llmcc_last_error");
        generate_ = find<decltype(&llmcc_generate)>("llmcc_generate");
        llmcc_model *opened = nullptr;
        check(find<decltype(&llmcc_open)>("llmcc_open")(nullptr, &opened));
        model_ = {opened, find<decltype(&llmcc_close)>("llmcc_close")};
    }

    // Calls `show` with each piece of text; it may return false to stop.
    void generate(std::string_view prompt, const llmcc_gen_params &params, std::function<bool(std::string_view)> show) {
        check(generate_(model_.get(), prompt.data(), prompt.size(), &params, &Model::piece, &show, nullptr));
    }

private:
    struct Unload {
        void operator()(void *library) const { dlclose(library); }
    };

    template <class Function> Function find(const char *symbol) const {
        void *found = dlsym(library_.get(), symbol);
        if (!found) throw std::runtime_error(std::string(symbol) + " is missing: the file is not an artifact of llmcc");
        return reinterpret_cast<Function>(found);
    }

    // A name without a slash would be looked for among the system's libraries.
    static std::string file(const std::string &path) {
        return path.find('/') == std::string::npos ? "./" + path : path;
    }

    static std::string name(uint32_t version) {
        return std::to_string(version >> 16) + "." + std::to_string(version & 0xFFFF);
    }

    void check(llmcc_status status) const {
        if (status != LLMCC_OK) throw std::runtime_error(last_error_());
    }

    // An exception must not leave it: the caller is C.
    static int32_t piece(void *user, const char *text, size_t len, int32_t) noexcept {
        return !(*static_cast<std::function<bool(std::string_view)> *>(user))({text, len});
    }

    std::unique_ptr<void, Unload> library_; // Goes last: the code of the model.
    decltype(&llmcc_last_error) last_error_ = nullptr;
    decltype(&llmcc_generate) generate_ = nullptr;
    std::unique_ptr<llmcc_model, decltype(&llmcc_close)> model_{nullptr, nullptr};
};

} // namespace example
