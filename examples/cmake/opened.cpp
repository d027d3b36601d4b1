// The model is a file that the program is given.
#include "model.hpp"

#include <exception>
#include <iostream>

int main(int argc, char **argv) {
    if (argc != 3) {
        std::cerr << "usage: opened MODEL.so PROMPT\n";
        return 2;
    }
    try {
        example::Model model(argv[1]);
        llmcc_gen_params params = LLMCC_GEN_PARAMS_INIT;
        params.max_tokens = 40;
        params.sampling.top_k = 1; // The most probable token.
        model.generate(argv[2], params, [](std::string_view text) { return bool(std::cout << text << std::flush); });
        std::cout << '\n';
    } catch (const std::exception &error) {
        std::cerr << "error: " << error.what() << '\n';
        return 1;
    }
}
