//! Growing a module: weights, states, deduplicated functions and calls.

mod states;

use crate::arch::blocks::names::{EXPERT_UP, HEAD, Kind, Names, Part, TABLE};
use crate::arch::blocks::origin::{Origin, Source, role_of};
use crate::arch::blocks::outputs::Entry;
use crate::arch::blocks::rounded_inputs::Rounded;
use crate::arch::blocks::tensors::{checked, numbers_below, without_prefix};
use crate::arch::reading::nested;
use crate::checkpoint::safetensors::TensorInfo;
use crate::checkpoint::{Checkpoint, GAIN, Wanted, WantedRole};
use crate::config::Facts;
use crate::embedding::Embedding;
use crate::error::FrontendError;
use llmcc_ir::graph::{
    self, Arg, Call, FuncBuilder, Input, ModelInfo, Module, Op, Role, STEP, Value, ValueType, Weight,
};
use llmcc_ir::kv::KvDType;
use llmcc_ir::output::{EntryOutput, Output};
use llmcc_ir::ty::{DType, Dim, TensorType};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

/// Builds a [`Module`] call by call.
pub(crate) struct Lifter<'a> {
    origin: Origin<'a>,
    /// The requested output.
    pub(crate) entry: Entry,
    kv_dtype: KvDType,
    module: Module,
    /// Weights of the module by name.
    weights: HashMap<String, usize>,
    /// The layer that each state belongs to.
    owners: Vec<Option<usize>>,
    /// Results of all calls so far.
    results: usize,
}

/// A result of a call, for the functions that follow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    result: usize,
    ty: Option<ValueType>,
}

/// One function under construction, with its call's arguments.
///
/// Asking for a tensor that the checkpoint lacks, like an operation that does not type, ends the
/// work on the function; [`Draft::call`] gives the reason.
pub(crate) struct Draft<'l, 'a> {
    lifter: &'l mut Lifter<'a>,
    name: &'static str,
    layer: Option<usize>,
    /// In a layer that has blocks twice, the current half.
    half: Option<usize>,
    f: FuncBuilder,
    args: Vec<(Arg, Value)>,
    /// Orders of columns that the function knows.
    orders: Vec<(&'a [u32], Value)>,
    /// The hidden states, where they are a result beside the function's own.
    kept: Option<Value>,
    /// Inputs of products that are rounded.
    pub(crate) rounded: Rounded,
    /// Constants that the function has, by their names and weights.
    constants: Vec<(String, usize, Value)>,
    error: Option<FrontendError>,
}

impl Deref for Draft<'_, '_> {
    type Target = FuncBuilder;
    fn deref(&self) -> &FuncBuilder {
        &self.f
    }
}

impl DerefMut for Draft<'_, '_> {
    fn deref_mut(&mut self) -> &mut FuncBuilder {
        &mut self.f
    }
}

impl<'a> Lifter<'a> {
    pub(crate) fn new(origin: Origin<'a>, entry: Entry, kv_dtype: KvDType, max_context: usize) -> Lifter<'a> {
        let facts = origin.facts;
        let info = ModelInfo { vocab: facts.vocab, hidden: facts.hidden, max_context };
        let name = facts.name.clone().unwrap_or_else(|| origin.model_type.to_string());
        let module = Module {
            name,
            info,
            weights: vec![],
            states: vec![],
            funcs: vec![],
            entries: vec![graph::Entry::new(STEP)],
        };
        Lifter { origin, entry, kv_dtype, module, weights: HashMap::new(), owners: vec![], results: 0 }
    }

    /// Starts a function that is no layer's.
    pub(crate) fn func(&mut self, name: &'static str) -> Draft<'_, 'a> {
        let f = FuncBuilder::new(name);
        Draft {
            lifter: self,
            name,
            layer: None,
            half: None,
            f,
            args: vec![],
            orders: vec![],
            kept: None,
            rounded: Rounded::default(),
            constants: vec![],
            error: None,
        }
    }

    /// Starts the function of layer `i`. `name` is numbered if functions of that name differ.
    pub(crate) fn layer(&mut self, name: &'static str, i: usize) -> Draft<'_, 'a> {
        Draft { layer: Some(i), ..self.func(name) }
    }

    /// Starts the function of one half of layer `i`: `{e}` in names is its number.
    pub(crate) fn half(&mut self, name: &'static str, i: usize, half: usize) -> Draft<'_, 'a> {
        Draft { half: Some(half), ..self.layer(name, i) }
    }

    /// The entry under construction.
    fn current(&mut self) -> &mut graph::Entry {
        let last = self.module.entries.len() - 1;
        &mut self.module.entries[last]
    }

    /// Ends the first entry; the last call's result is its output.
    fn end_step(&mut self) {
        if self.module.entries.len() == 1 {
            let output = EntryOutput { output: self.entry.output, at: self.results.saturating_sub(1) };
            self.current().outputs.insert(0, output);
        }
    }

    /// Ends the entry under construction. The calls that follow are of entry `name`, which updates states and gives
    /// nothing; its tensors have the names `names`, its sequences are of at most `context` tokens (or as the model's).
    pub(crate) fn next_entry(&mut self, name: &str, names: Names, context: Option<usize>) {
        self.end_step();
        self.module.entries.push(graph::Entry { context, ..graph::Entry::new(name) });
        self.results = 0;
        self.origin.names = names;
    }

    /// Ends the module; the last call's result is the output of the first entry.
    pub(crate) fn finish(mut self) -> (Module, Source<'a>) {
        self.end_step();
        (self.module, self.origin.source)
    }

    /// Checks a tensor, which `parameter` reads, and makes it a weight of the module, once.
    fn weight(
        &mut self,
        parameter: &str,
        tensor: String,
        shape: &[usize],
        kind: Kind,
    ) -> Result<(usize, TensorType), FrontendError> {
        let stored = kind.stored(shape);
        let dtype = match &mut self.origin.source {
            Source::Checkpoint(ckpt) => checked(ckpt, &tensor, &stored, self.origin.names, self.origin.class)?,
            Source::Wanted(wish) => {
                if !self.weights.contains_key(&tensor) {
                    let role = role_of(parameter, kind, shape);
                    wish.tensors.push(Wanted { name: tensor.clone(), shape: stored.clone(), role });
                }
                DType::Bf16
            }
        };
        let ty = TensorType::new(dtype, shape.iter().map(|n| Dim::Static(*n)));
        Ok((self.add_weight(Weight { name: tensor, ty: ty.clone(), data: None }), ty))
    }

    fn add_weight(&mut self, w: Weight) -> usize {
        let next = self.module.weights.len();
        let i = *self.weights.entry(w.name.clone()).or_insert(next);
        if i == next {
            self.module.weights.push(w);
        }
        i
    }

    /// The checkpoint's name for a tensor of a layer or none, and of one of its experts or halves;
    /// `None` where no table has the part.
    fn tensor_of(&self, part: Part, kind: Kind, layer: Option<usize>, expert: Option<usize>) -> Option<String> {
        // Encoders may omit the first part of the name, too.
        let bare = !self.origin.nested && self.entry.output != Output::Logits;
        let has = |name: &str| match &self.origin.source {
            Source::Checkpoint(ckpt) if bare => self.has(&without_prefix(ckpt, name.to_string())),
            Source::Checkpoint(ckpt) if self.origin.nested => self.has(&nested::located(ckpt, name.to_string())),
            _ => self.has(name),
        };
        let (names, place) = (self.origin.names, (layer, expert));
        let name = match (self.entry.draft, self.entry.drafter) {
            (Some(draft), _) => draft.tensor_of(names, (part, kind), place, has)?,
            (None, Some(drafter)) => drafter.tensor_of(names, (part, kind), place, has)?,
            (None, None) => names.tensor_of(part, kind, place, has)?,
        };
        match &self.origin.source {
            Source::Checkpoint(ckpt) if self.origin.nested => Some(nested::located(ckpt, name)),
            Source::Checkpoint(ckpt) if self.entry.output != Output::Logits => Some(without_prefix(ckpt, name)),
            _ => Some(name),
        }
    }

    /// True if the checkpoint holds a tensor.
    fn has(&self, tensor: &str) -> bool {
        matches!(&self.origin.source, Source::Checkpoint(c) if c.info(tensor).is_some())
    }
}

impl<'a> Draft<'_, 'a> {
    /// The checkpoint, and its name for the matrix of a part.
    pub(crate) fn matrix_of(&self, part: Part) -> Option<(&Checkpoint, String)> {
        let Source::Checkpoint(ckpt) = &self.lifter.origin.source else { return None };
        Some((ckpt, self.lifter.tensor_of(part, Kind::Matrix, self.layer, self.half)?))
    }

    /// Facts common to all models.
    pub(crate) fn facts(&self) -> &'a Facts {
        self.lifter.origin.facts
    }

    /// The layer that the function is of, and which of its halves.
    pub(crate) fn place(&self) -> [Option<usize>; 2] {
        [self.layer, self.half]
    }

    /// The longest sequence, in tokens.
    pub(crate) fn max_context(&self) -> usize {
        self.lifter.module.info.max_context
    }

    /// The model's output.
    pub(crate) fn output(&self) -> Output {
        self.lifter.entry.output
    }

    /// Whether another entry of the module has logits.
    pub(crate) fn stands_beside(&self) -> bool {
        self.lifter.entry.beside
    }

    /// The embedding made of the last layer's rows; `None` where logits or scores are requested.
    pub(crate) fn embedding(&self) -> Option<Embedding> {
        self.lifter.entry.embedding.clone()
    }

    fn bind(&mut self, name: &str, ty: impl Into<ValueType>, role: Role, arg: Arg) -> Value {
        let v = self.f.param(name, ty, role);
        self.args.push((arg, v));
        v
    }

    /// A result of an earlier call.
    pub(crate) fn carried(&mut self, name: &str, x: &Carried) -> Value {
        match x.ty.clone() {
            Some(ty) => self.bind(name, ty, Role::Data, Arg::Value(x.result)),
            None => self.f.stop(),
        }
    }

    /// A per-step input, one parameter however often it is asked for; [`Draft::given`] has rows.
    pub(crate) fn input(&mut self, input: Input) -> Value {
        self.array(input, 0)
    }

    /// Rows of `columns` that come with the tokens.
    pub(crate) fn given(&mut self, columns: usize) -> Value {
        let rows = self.array(Input::Given, columns);
        self.op(Op::GivenRows, &[rows])
    }

    fn array(&mut self, input: Input, columns: usize) -> Value {
        let known = self.args.iter().find(|(of, _)| *of == Arg::Input(input)).map(|(_, v)| *v);
        known.unwrap_or_else(|| self.bind(input.name(), input.ty(columns), Role::Data, Arg::Input(input)))
    }

    /// A tensor of the checkpoint, checked: of this layer where the function is a layer's.
    pub(crate) fn weight(&mut self, part: Part, kind: Kind, shape: &[usize]) -> Value {
        self.weight_for(part, kind, shape, Role::Weight)
    }

    /// The same, of a tensor that several functions read.
    pub(crate) fn shared_weight(&mut self, part: Part, kind: Kind, shape: &[usize]) -> Value {
        self.weight_for(part, kind, shape, Role::SharedWeight)
    }

    /// The description of a part's tensor; none where there is no checkpoint yet.
    fn info(&self, part: Part, kind: Kind) -> Option<&TensorInfo> {
        let Source::Checkpoint(ckpt) = &self.lifter.origin.source else { return None };
        ckpt.info(&self.lifter.tensor_of(part, kind, self.layer, self.half)?)
    }

    /// Whether the checkpoint has the tensor of a part as codes.
    pub(crate) fn is_coded(&self, part: Part, kind: Kind) -> bool {
        self.info(part, kind).is_some_and(|i| i.dtype.is_coded())
    }

    /// The shape of the tensor of a part; none where there is none yet.
    pub(crate) fn shape_of(&self, part: Part, kind: Kind) -> Option<&[usize]> {
        Some(&self.info(part, kind)?.shape)
    }

    /// A table of whole numbers below `below` from a tensor; no row has one twice.
    pub(crate) fn numbers(&mut self, part: Part, shape: [usize; 2], below: usize) -> Value {
        let l = &mut *self.lifter;
        let Some(tensor) = l.tensor_of(part, Kind::Bare, self.layer, None) else { return self.f.stop() };
        let found = match &mut l.origin.source {
            Source::Checkpoint(ckpt) => numbers_below(ckpt, &tensor, (shape, below), l.origin.names, l.origin.class),
            Source::Wanted(wish) => {
                let role = WantedRole::Numbers;
                wish.tensors.push(Wanted { name: tensor.clone(), shape: shape.to_vec(), role });
                Ok((0..shape[0]).flat_map(|_| 0..shape[1]).map(|n| n as f32).collect())
            }
        };
        match found {
            Ok(data) => self.table(part.0, &format!("${tensor}"), shape, data, Role::Weight),
            Err(e) => self.refuse(e),
        }
    }

    /// The matrix `[out, in]` of a part.
    pub(crate) fn matrix(&mut self, part: Part, shape: [usize; 2]) -> Value {
        self.weight(part, Kind::Matrix, &shape)
    }

    /// The matrix `[out, in]` that an expert has of a part.
    pub(crate) fn expert(&mut self, part: Part, expert: usize, shape: [usize; 2]) -> Value {
        self.numbered(part, Kind::Matrix, expert, &shape)
    }

    /// Whether the checkpoint has a tensor (of several the first). Where there is none yet, only matrices of
    /// single experts, if those are wanted.
    pub(crate) fn stores(&self, part: Part, kind: Kind) -> bool {
        if let Source::Wanted(wish) = &self.lifter.origin.source {
            return wish.single_experts && part == EXPERT_UP && kind == Kind::Matrix;
        }
        let name = self.lifter.tensor_of(part, kind, self.layer, self.half.or(Some(0)));
        name.is_some_and(|name| self.lifter.has(&name))
    }

    /// The tensor of one of several, such as heads, for a part.
    pub(crate) fn numbered(&mut self, part: Part, kind: Kind, number: usize, shape: &[usize]) -> Value {
        let tensor = self.lifter.tensor_of(part, kind, self.layer, Some(number));
        let name = format!("{}.{number}", kind.parameter(part));
        self.named(&name, tensor, kind, shape, Role::Weight)
    }

    /// A tensor named for another layer; with a number for one of its parts, this layer's alone.
    pub(crate) fn of_layer(&mut self, part: Part, kind: Kind, of: (usize, Option<usize>), shape: &[usize]) -> Value {
        let tensor = self.lifter.tensor_of(part, kind, Some(of.0), of.1);
        let role = if of.1.is_some() { Role::Weight } else { Role::SharedWeight };
        self.named(&kind.parameter(part), tensor, kind, shape, role)
    }

    /// The bias of a part.
    pub(crate) fn bias(&mut self, part: Part, len: usize) -> Value {
        self.weight(part, Kind::Bias, &[len])
    }

    /// The table of embedding and head, which two functions read; a file may hold it by either name.
    pub(crate) fn tied_table(&mut self, shape: [usize; 2]) -> Value {
        let name = |part, kind| self.lifter.tensor_of(part, kind, None, None);
        let has = |name: Option<String>| name.is_some_and(|n| self.lifter.has(&n));
        let by_head = !has(name(TABLE, Kind::Table)) && has(name(HEAD, Kind::Matrix));
        let tensor = if by_head { name(HEAD, Kind::Matrix) } else { name(TABLE, Kind::Table) };
        self.named(&Kind::Table.parameter(TABLE), tensor, Kind::Table, &shape, Role::SharedWeight)
    }

    /// A tensor of the checkpoint that no table of names has.
    pub(crate) fn named_weight(&mut self, name: &str, tensor: String, kind: Kind, shape: &[usize]) -> Value {
        self.named(name, Some(tensor), kind, shape, Role::Weight)
    }

    fn weight_for(&mut self, part: Part, kind: Kind, shape: &[usize], role: Role) -> Value {
        let tensor = self.lifter.tensor_of(part, kind, self.layer, self.half);
        self.named(&kind.parameter(part), tensor, kind, shape, role)
    }

    fn named(&mut self, name: &str, tensor: Option<String>, kind: Kind, shape: &[usize], role: Role) -> Value {
        if self.error.is_some() {
            return self.f.stop();
        }
        let bound = match tensor {
            Some(tensor) => self.lifter.weight(name, tensor, shape, kind),
            None => Err(self.structure(format!(
                "no tensor is named for parameter `{name}`; add it to the architecture's table of names"
            ))),
        };
        match bound {
            Ok((i, ty)) => {
                let w = self.bind(name, ty, role, Arg::Weight(i));
                self.placed(w, i)
            }
            Err(e) => self.refuse(e),
        }
    }

    /// Stops with this error, if it is the first.
    fn refuse(&mut self, e: FrontendError) -> Value {
        self.error = self.error.take().or(Some(e));
        self.f.stop()
    }

    /// The matrix that weight `i` is, where its columns are stored in another order.
    fn placed(&mut self, w: Value, i: usize) -> Value {
        let Source::Checkpoint(ckpt) = self.lifter.origin.source else { return w };
        let Some(Weight { name, ty, .. }) = self.lifter.module.weights.get(i).cloned() else { return w };
        if let Some(how) = ckpt.input_rounding(&name) {
            let gain = how.norm.map(|_| self.gain_of_input(&name, ty.cols().unwrap_or(0)));
            self.rounded.matrix(w, how, gain);
        }
        let Some(order) = ckpt.order(&name) else { return w };
        let constant = format!("$order{}", self.lifter.module.weights.len());
        // Matrices that have an input in common mostly have their order in common.
        let known = self.orders.iter().find(|(known, _)| *known == order).map(|(_, v)| *v);
        let order = known.unwrap_or_else(|| {
            let columns = order.iter().map(|j| *j as f32).collect(); // Below 2²⁴: `quantized` sees to it.
            let v = self.computed(&format!("order{}", self.orders.len()), &constant, columns);
            self.orders.push((order, v));
            v
        });
        self.f.op(Op::PlaceCols, &[w, order])
    }

    /// The gain of the input of products with matrix `tensor`.
    fn gain_of_input(&mut self, tensor: &str, columns: usize) -> Value {
        let gain = format!("{}{GAIN}", tensor.strip_suffix("weight").unwrap_or(tensor));
        match self.lifter.weight("input_gain", gain, &[columns], Kind::Gain) {
            Ok((i, ty)) => {
                let name = format!("input_gain{}", self.rounded.matrices.len());
                self.bind(&name, ty, Role::Weight, Arg::Weight(i))
            }
            Err(e) => self.refuse(e),
        }
    }

    /// A vector computed here; `constant` starts with `$`.
    pub(crate) fn computed(&mut self, name: &str, constant: &str, data: Vec<f32>) -> Value {
        self.constant(name, constant, data, Role::Weight)
    }

    /// The same, which other functions read too.
    pub(crate) fn shared_constant(&mut self, name: &str, constant: &str, data: Vec<f32>) -> Value {
        self.constant(name, constant, data, Role::SharedWeight)
    }

    /// The same as a table of so many rows and columns.
    pub(crate) fn shared_table(&mut self, name: &str, constant: &str, shape: [usize; 2], data: Vec<f32>) -> Value {
        self.table(name, constant, shape, data, Role::SharedWeight)
    }

    pub(crate) fn table(&mut self, name: &str, constant: &str, shape: [usize; 2], data: Vec<f32>, role: Role) -> Value {
        let ty = TensorType::new(DType::F32, shape.map(Dim::Static));
        self.constant_of(name, constant, ty, data, role)
    }

    fn constant(&mut self, name: &str, constant: &str, data: Vec<f32>, role: Role) -> Value {
        let ty = TensorType::vector(data.len());
        self.constant_of(name, constant, ty, data, role)
    }

    fn constant_of(&mut self, name: &str, constant: &str, ty: TensorType, data: Vec<f32>, role: Role) -> Value {
        let weight = Weight { name: constant.to_string(), ty: ty.clone(), data: Some(data) };
        let i = self.lifter.add_weight(weight);
        if let Some((.., known)) = self.constants.iter().find(|(of, weight, _)| (&**of, *weight) == (name, i)) {
            return *known;
        }
        let v = self.bind(name, ty, role, Arg::Weight(i));
        self.constants.push((name.to_string(), i, v));
        v
    }

    /// A mistake of the architecture, or a configuration that no reader refused and that fits no
    /// structure.
    fn structure(&self, what: String) -> FrontendError {
        let function = match self.layer {
            Some(i) => format!("`{}` of layer {i}", self.name),
            None => format!("`{}`", self.name),
        };
        let file = match &self.lifter.origin.source {
            Source::Checkpoint(c) => c.config_path().to_path_buf(),
            Source::Wanted(_) => "config.json".into(),
        };
        FrontendError::Structure { file, class: self.lifter.origin.class, function, what }
    }

    /// Stops with an error about a misfit of the structure.
    pub(crate) fn misfit(&mut self, what: &str) -> Value {
        let error = self.structure(what.into());
        self.refuse(error)
    }

    /// Whether the model's caller wants the hidden states.
    pub(crate) fn keeps_hidden(&self) -> bool {
        self.lifter.entry.hidden
    }

    /// Whether the tokens of an image see each other, before and after.
    pub(crate) fn sees_images_whole(&self) -> bool {
        self.lifter.entry.image.is_some_and(|image| image.both_ways)
    }

    /// The rows of tokens, in place of some the rows that the caller gives, where the model takes rows of images.
    pub(crate) fn with_images(&mut self, x: Value) -> Value {
        let Some(image) = self.lifter.entry.image else { return x };
        let hidden = self.facts().hidden;
        let (tokens, rows) = (self.input(Input::Tokens), self.array(Input::Given, hidden));
        self.f.op(Op::Substitute { token: image.token }, &[x, tokens, rows])
    }

    /// Leaves `x`, `[T, hidden]`, to the model's caller.
    pub(crate) fn keep(&mut self, x: Value) {
        self.kept = Some(x);
    }

    /// Ends the function and calls it; an equal function is used again. Gives a result of the call
    /// for each of `results`.
    ///
    /// # Errors
    /// The first tensor that the checkpoint lacks, or the first operation that does not type.
    pub(crate) fn call(mut self, results: &[Value]) -> Result<Vec<Carried>, FrontendError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let f = std::mem::replace(&mut self.f, FuncBuilder::new(""));
        let types: Vec<Option<ValueType>> = results.iter().map(|v| f.ty(*v).cloned()).collect();
        let all: Vec<Value> = self.kept.iter().chain(results).copied().collect();
        let mut func = f.try_finish(&all).map_err(|mistake| self.structure(mistake.to_string()))?;
        let Draft { lifter, name, args, kept, .. } = self;
        let m = &mut lifter.module;
        let index = m.funcs.iter().position(|k| k.computes_as(&func)).unwrap_or_else(|| {
            let twins =
                m.funcs.iter().filter(|k| k.name.trim_end_matches(|c: char| c.is_ascii_digit()) == name).count();
            func.name = if twins == 0 { name.to_string() } else { format!("{name}{twins}") };
            m.funcs.push(func);
            m.funcs.len() - 1
        });
        let at = lifter.results;
        let entry = lifter.current();
        entry.calls.push(Call { func: index, args: args.into_iter().map(|(arg, _)| arg).collect() });
        if kept.is_some() && entry.hidden().is_none() {
            entry.outputs.push(EntryOutput { output: Output::Hidden, at });
        }
        let first = lifter.results + all.len() - results.len();
        lifter.results += all.len();
        Ok(types.into_iter().enumerate().map(|(i, ty)| Carried { result: first + i, ty }).collect())
    }
}
