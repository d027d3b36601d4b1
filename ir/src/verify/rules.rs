//! The names of the rules, for tests and documentation.

/// Every rule: code and requirement. Rules marked "(warning)" do not make a thing unusable.
pub const RULES: &[(&str, &str)] = &[
    // All levels.
    ("empty-name", "things have names"),
    ("duplicate-name", "names in one scope differ"),
    ("kv-spec", "an attention state has heads, elements and, if any, a window of at least one token"),
    ("state-spec", "a state of fixed size holds something, and not too much"),
    ("attribute", "numbers in attributes are finite"),
    // Graph.
    ("model-info", "vocabulary, width and context are positive"),
    ("undefined-value", "values are defined before they are used"),
    ("ill-typed", "arguments follow the typing rule of the operation"),
    ("recorded-type", "the type written at a node is the one its operation has"),
    (
        "param-role",
        "activations have a row per token or logits row, weights are float vectors, matrices or stacks of these, states are states",
    ),
    ("weights-only", "operations on weights take values known when compiling"),
    ("shared-weight", "a weight that other functions read is not rewritten"),
    ("needs-weight", "tables and matrices of products are weights"),
    ("stale-state", "a state is appended to or updated once, and what it was is not read after that"),
    ("state-result", "results are tensors"),
    ("weight-type", "a weight is a float vector, matrix or stack of matrices of known size"),
    ("weight-data", "a weight has as many values as its type says"),
    ("call-func", "called functions exist"),
    ("call-args", "a call has an argument per parameter"),
    ("call-arg", "arguments exist, and values come from earlier calls"),
    ("call-role", "arguments are what the role of the parameter asks for"),
    ("call-type", "arguments have the type of the parameter"),
    ("given-rows", "the calls of an entry that take the rows given with its tokens take as many columns"),
    ("positions", "a table that is read by positions has a row for each"),
    ("entries", "there are entries; in a plan, regimes stand in their order"),
    ("state-calls", "a state is updated by one call of an entry, and read by none before it"),
    ("output", "the output exists and is f32 [R, its columns]; in a plan, it is all written and not overwritten"),
    ("hidden", "hidden states that the caller gets exist, likewise, and are f32 [T, hidden]"),
    ("unused-state", "a state is used (warning)"),
    ("unused-weight", "a weight is used (warning)"),
    ("unshared-weight", "a weight of several uses is declared shared (warning)"),
    // Kernel.
    ("conv-width", "a convolution sees at least one token before its own"),
    ("conv-columns", "a convolution reads columns that are there"),
    (
        "adapter-parts",
        "parts of a product with an adapter are whole blocks of its rows, and read columns that there are",
    ),
    ("embed-steps", "rows of a table are for so many positions: 1 or more, less than 2³⁰, as is what is added to them"),
    (
        "hashes",
        "hashes have a factor for each id, as many sizes for each number of ids, and rows of the table to choose from",
    ),
    ("conv-taps", "a convolution has a tap per channel and token that it sees"),
    ("recurrence-groups", "groups of queries and keys divide the heads of a recurrence"),
    ("recurrence-update", "a recurrence has keys of what is erased if it erases"),
    ("recurrence-columns", "a recurrence reads columns that are there"),
    ("kernel-rows", "rows are T or R; tokens' work (attention, embedding, tables, cache) has T, gathers have R"),
    ("param-range", "operands exist"),
    ("param-kind", "operands are of the kind their use needs, not empty, with a quantization group of the table"),
    ("param-rows", "operands have the rows of the kernel (the source of a gather: T)"),
    ("param-elem", "operands are f32 where their storage is not free; queries are not quantized"),
    ("param-columns", "operands have the columns their use needs"),
    ("unused-param", "operands are used (warning)"),
    ("tile-m", "a pass has rows"),
    ("k-parts", "columns of the input are cut in 1 part or more"),
    (
        "tile-n",
        "tiles are whole blocks of 16, column runs of the expression and groups of the store, unless one covers the segment",
    ),
    ("experts", "experts are chosen among those there are, and their products followed by elementwise work on rows"),
    ("no-segments", "a matmul or pointwise kernel computes something"),
    ("row-scale", "runs divide the columns, and what they are brought to is positive"),
    ("square-matrix", "each row is a square matrix of at most 8 rows, balanced in 1 to 1000 rounds"),
    ("eviction", "a cache that drops tokens has a budget, last tokens that stay, and a state of these sizes"),
    ("selection", "rows are selected from states of rows that are stored once, and read by plain causal attention"),
    ("segment-size", "segments and tiles have columns"),
    ("no-lanes", "a matmul segment has weights"),
    ("pointwise-weights", "a pointwise segment has none"),
    ("mixed-packing", "the matrices of a kernel have one packing"),
    ("matrix-shape", "matrices are [columns of the segment, columns of the input]"),
    ("int8-group", "weights for int8 rows are quantized in the same groups"),
    ("fp8-weights", "weights for fp8 rows are fp8"),
    ("unused-lane", "accumulators are used (warning)"),
    ("acc-in-pointwise", "pointwise expressions have no accumulators"),
    ("acc-lane", "accumulators exist"),
    ("expr-columns", "expressions read columns that exist"),
    ("vector-length", "vectors divide the columns (gain and bias of a prologue: have as many elements)"),
    ("norm-width", "runs of a normalization divide the columns"),
    ("rope-heads", "heads divide the columns"),
    ("rope-table", "the table has an even number of columns and no more than a head"),
    ("gather-residual", "gathered rows are added to nothing"),
    ("prologue-input", "a prologue has f32 input"),
    ("prologue-empty", "a prologue does something"),
    ("prologue-quant", "a prologue quantizes in groups of the table"),
    ("store-columns", "stores lie within the columns"),
    (
        "store-group",
        "int8 stores are whole groups, for attention within the queries of a KV head; fp8 rows are stored by row-wise kernels",
    ),
    ("kv-columns", "keys and values have the columns of the state"),
    ("attention-heads", "KV heads divide the query heads"),
    ("latent", "queries of a latent cache, and of no other, are in two parts of one storage"),
    ("top-k", "there are at most as many candidates as logits, and fewer logits than 2^24"),
    ("race", "no work item reads or stores what another stores"),
    // Plan.
    ("weight-storage", "weights have a storage, of the shape of their expression"),
    ("weight-expr", "weight expressions are well typed"),
    ("regimes", "regimes ascend, and the last serves any number of tokens"),
    ("buffer-type", "buffers have rows of T or R and columns"),
    ("slot-range", "slots exist"),
    ("slot-size", "slots hold their buffers at any T and R"),
    ("slot-overlap", "buffers alive in the same launch have different slots"),
    ("launch-kernel", "launched kernels exist"),
    ("launch-operands", "a launch has an operand per parameter"),
    ("operand-type", "operands exist and are what the parameter says"),
    ("aliased-operands", "an operand that is written is bound once"),
    ("read-before-write", "columns are written by earlier launches before they are read"),
    ("state-order", "keys and values are stored once in a step, before attention reads them"),
    ("state-groups", "the attention states of a launch have one window, so that they share a block table"),
    ("target-packing", "matrices are packed as the target reads them"),
    (
        "target-rows",
        "rows are of a kind that the target's line multiplies: f32 everywhere, int8 on CPUs, f16 on GPUs, bf16 on both, fp8 on GPUs with such instructions",
    ),
    ("tap", "taps have the rows of their types when their call has ended, and name weights and experts that there are"),
    ("candidates", "the candidates of a plan are f32 [R, 2k + 1], all written and not overwritten"),
    ("target-kernel", "only GPUs look for candidates"),
    ("unused-buffer", "buffers are used (warning)"),
    ("unused-kernel", "kernels are launched (warning)"),
];

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn every_rule_is_listed_and_has_a_failing_case() {
        let tests = concat!(include_str!("tests.rs"), include_str!("top_k_tests.rs"));
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let beside = std::fs::read_dir(root.join("tests/lir/verify")).unwrap();
        let beside: String = beside.map(|f| std::fs::read_to_string(f.unwrap().path()).unwrap()).collect();
        let source = root.join("src");
        let files =
            ["verify", "kernel", "state"].into_iter().flat_map(|dir| std::fs::read_dir(source.join(dir)).unwrap());
        let files = files.map(|f| f.unwrap().path()).filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name != "rules.rs" && !name.ends_with("tests.rs")
        });
        let sources: String = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        for (code, _) in RULES {
            let tested = tests.contains(&format!("\"{code}\"")) || beside.contains(&format!("[{code}]"));
            assert!(tested, "`{code}` has no test");
            assert!(sources.contains(&format!("\"{code}\"")), "`{code}` is not checked");
        }
        let mut names: Vec<_> = RULES.iter().map(|(code, _)| code).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len(), "a rule is listed twice");
    }
}
