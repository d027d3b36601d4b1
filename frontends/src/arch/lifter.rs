//! Growing a module: weights, states, deduplicated functions and calls.

use crate::checkpoint::Checkpoint;
use crate::config::Config;
use crate::error::FrontendError;
use llmcc_ir::graph::{Arg, Call, Func, FuncBuilder, Input, ModelInfo, Module, Op, Role, Value, Weight};
use llmcc_ir::kv::{KvDType, KvSpec};
use llmcc_ir::ty::{DType, Dim, TensorType};

/// Embedding table.
pub(crate) const TABLE: &str = "model.embed_tokens.weight";
/// Head, unless it is the embedding table.
pub(crate) const HEAD: &str = "lm_head.weight";

/// Builds a [`Module`] call by call.
pub(super) struct Lifter<'a> {
    ckpt: &'a Checkpoint,
    /// Sizes and choices of the model.
    pub config: &'a Config,
    kv_dtype: KvDType,
    module: Module,
    /// Results of all calls so far.
    results: usize,
}

/// One function under construction, with what its call binds. All parameters are declared before the first operation.
pub(super) struct Call1<'l, 'a> {
    lifter: &'l mut Lifter<'a>,
    name: &'static str,
    /// The operations.
    pub f: FuncBuilder,
    args: Vec<Arg>,
}

impl<'a> Lifter<'a> {
    pub(super) fn new(ckpt: &'a Checkpoint, config: &'a Config, kv_dtype: KvDType, max_context: usize) -> Lifter<'a> {
        let info = ModelInfo { vocab: config.vocab, hidden: config.hidden, max_context };
        let name = config.name.clone().unwrap_or_else(|| config.arch.model_type.to_string());
        let module = Module { name, info, weights: vec![], kv: vec![], funcs: vec![], step: vec![], logits: 0 };
        Lifter { ckpt, config, kv_dtype, module, results: 0 }
    }

    /// Starts a function. `name` is numbered if functions of that name differ.
    pub(super) fn func(&mut self, name: &'static str) -> Call1<'_, 'a> {
        Call1 { lifter: self, name, f: FuncBuilder::new(""), args: vec![] }
    }

    /// True if the checkpoint holds a tensor.
    pub(super) fn has(&self, tensor: &str) -> bool {
        self.ckpt.info(tensor).is_some()
    }

    /// Ends the module; the last call's result is the logits.
    pub(super) fn finish(mut self) -> Module {
        self.module.logits = self.results - 1;
        self.module
    }

    /// Checks a tensor and makes it a weight of the module, once.
    fn weight(&mut self, tensor: &str, shape: &[usize]) -> Result<(usize, TensorType), FrontendError> {
        let info = self.ckpt.info(tensor).ok_or_else(|| self.missing(tensor, shape))?;
        if info.shape != shape {
            return Err(FrontendError::TensorShape {
                file: self.ckpt.shard_name(tensor),
                name: tensor.to_string(),
                expected: shape.to_vec(),
                found: info.shape.clone(),
            });
        }
        let dtype = match info.dtype.dtype {
            Some(t @ (DType::F32 | DType::F16 | DType::Bf16)) => t,
            _ => return Err(self.ckpt.bad_dtype(tensor, info)),
        };
        let ty = TensorType::new(dtype, shape.iter().map(|n| Dim::Static(*n)));
        Ok((self.add_weight(Weight { name: tensor.to_string(), ty: ty.clone(), data: None }), ty))
    }

    fn add_weight(&mut self, w: Weight) -> usize {
        let known = self.module.weights.iter().position(|k| k.name == w.name);
        known.unwrap_or_else(|| {
            self.module.weights.push(w);
            self.module.weights.len() - 1
        })
    }

    fn missing(&self, tensor: &str, shape: &[usize]) -> FrontendError {
        let hint = if tensor == HEAD {
            "; if the head shares the embedding table, set `tie_word_embeddings` to true in config.json"
        } else if self.has(tensor.trim_start_matches("model.")) {
            "; it is there without the `model.` prefix: this is a bare encoder, not a model for text generation"
        } else if self.has(&format!("{}.qweight", tensor.trim_end_matches(".weight"))) {
            "; its quantized form is there: use the unquantized checkpoint and compile with --w8 or --w4"
        } else {
            "; the checkpoint is incomplete or belongs to another architecture"
        };
        FrontendError::MissingTensor {
            name: tensor.to_string(),
            arch: self.config.arch.class,
            expected: shape.to_vec(),
            hint: hint.to_string(),
        }
    }
}

impl<'a> Call1<'_, 'a> {
    /// Sizes and choices of the model.
    pub(super) fn config(&self) -> &'a Config {
        self.lifter.config
    }

    fn param(&mut self, name: &str, ty: impl Into<llmcc_ir::graph::ValueType>, role: Role, arg: Arg) -> Value {
        self.args.push(arg);
        self.f.param(name, ty, role)
    }

    /// Activations `[rows, cols]`: result number `result` of the step.
    pub(super) fn activation(&mut self, name: &str, result: usize, rows: Dim, cols: usize) -> Value {
        self.param(name, TensorType::rows(rows, cols), Role::Data, Arg::Value(result))
    }

    /// A per-step input.
    pub(super) fn input(&mut self, input: Input) -> Value {
        let (_, name) = Input::ALL.iter().find(|(i, _)| *i == input).copied().unwrap_or((input, "input"));
        let rows = if input == Input::OutRows { Dim::Rows } else { Dim::Tokens };
        self.param(name, TensorType::new(DType::I32, [rows]), Role::Data, Arg::Input(input))
    }

    /// A weight of the checkpoint, checked.
    pub(super) fn weight(&mut self, name: &str, tensor: &str, shape: &[usize]) -> Result<Value, FrontendError> {
        self.bind_weight(name, tensor, shape, Role::Weight)
    }

    /// The table of embedding and head; a file may hold it by either name.
    pub(super) fn tied_table(&self) -> &'static str {
        if !self.lifter.has(TABLE) && self.lifter.has(HEAD) { HEAD } else { TABLE }
    }

    /// A weight that several functions read.
    pub(super) fn shared_weight(&mut self, name: &str, tensor: &str, shape: &[usize]) -> Result<Value, FrontendError> {
        self.bind_weight(name, tensor, shape, Role::SharedWeight)
    }

    fn bind_weight(&mut self, name: &str, tensor: &str, shape: &[usize], role: Role) -> Result<Value, FrontendError> {
        let (i, ty) = self.lifter.weight(tensor, shape)?;
        Ok(self.param(name, ty, role, Arg::Weight(i)))
    }

    /// A vector computed here; `constant` starts with `$`.
    pub(super) fn computed(&mut self, name: &str, constant: &str, data: Vec<f32>) -> Value {
        let ty = TensorType::vector(data.len());
        let weight = Weight { name: constant.to_string(), ty: ty.clone(), data: Some(data) };
        let i = self.lifter.add_weight(weight);
        self.param(name, ty, Role::Weight, Arg::Weight(i))
    }

    /// The state of a new attention layer. A window that no sequence can outgrow is none.
    pub(super) fn state(&mut self, name: &str, window: Option<usize>) -> Value {
        let c = self.lifter.config;
        let l = &mut *self.lifter;
        let window = window.filter(|w| *w < l.module.info.max_context);
        let spec = KvSpec { dtype: l.kv_dtype, kv_heads: c.kv_heads, head_dim: c.head_dim, window };
        l.module.kv.push(spec);
        let i = l.module.kv.len() - 1;
        self.param(name, llmcc_ir::graph::ValueType::Kv(spec), Role::State, Arg::Kv(i))
    }

    /// Adds an operation.
    pub(super) fn op(&mut self, op: Op, args: &[Value]) -> Value {
        self.f.op(op, args)
    }

    /// Ends the function and calls it; an equal function is used again. Returns the number of its first result.
    pub(super) fn call(self, results: &[Value]) -> usize {
        let Call1 { lifter, name, f, args } = self;
        let m = &mut lifter.module;
        let mut func = f.finish(results);
        let same = |k: &Func| k.params == func.params && k.nodes == func.nodes && k.results == func.results;
        let index = m.funcs.iter().position(same).unwrap_or_else(|| {
            let twins = m.funcs.iter().filter(|k| k.name.trim_end_matches(|c: char| c.is_ascii_digit()) == name).count();
            func.name = if twins == 0 { name.to_string() } else { format!("{name}{twins}") };
            m.funcs.push(func);
            m.funcs.len() - 1
        });
        m.step.push(Call { func: index, args });
        lifter.results += results.len();
        lifter.results - results.len()
    }
}
