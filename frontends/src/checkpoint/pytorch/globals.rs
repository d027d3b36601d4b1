//! The names that a pickle of tensors may ask for, and their meanings here. Nothing is run: a name
//! that is not in the table is an error.

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Called, it makes a dictionary.
    Dict,
    /// Called with storage, offset, sizes and strides, it makes a tensor.
    Tensor,
    /// The same, with the element type as the seventh argument.
    TypedTensor,
    /// Called with a tensor, it is that tensor.
    Parameter,
    /// Called with another of these and its arguments, it gives that one's result.
    Apply,
    /// Called with a tuple, it is that tuple.
    Size,
    /// The class of a storage of elements of this type of safetensors.
    Storage(&'static str),
    /// An element type.
    Type(&'static str),
    /// Called or not, a thing that no tensor is made of.
    Plain,
}

/// Names of modules and their members.
const GLOBALS: &[(&str, Meaning)] = &[
    ("collections.OrderedDict", Meaning::Dict),
    ("collections.Counter", Meaning::Dict),
    ("torch._utils._rebuild_tensor", Meaning::Tensor),
    ("torch._utils._rebuild_tensor_v2", Meaning::Tensor),
    ("torch._utils._rebuild_tensor_v3", Meaning::TypedTensor),
    ("torch._utils._rebuild_parameter", Meaning::Parameter),
    ("torch._tensor._rebuild_from_type_v2", Meaning::Apply),
    ("torch.Size", Meaning::Size),
    ("torch.Tensor", Meaning::Plain),
    ("torch.nn.parameter.Parameter", Meaning::Plain),
    ("torch.device", Meaning::Plain),
    ("torch.serialization._get_layout", Meaning::Plain),
    ("numpy.dtype", Meaning::Plain),
    ("numpy.core.multiarray.scalar", Meaning::Plain),
    ("numpy._core.multiarray.scalar", Meaning::Plain),
    ("_codecs.encode", Meaning::Plain),
    ("builtins.set", Meaning::Plain),
    ("__builtin__.set", Meaning::Plain),
    ("builtins.bytearray", Meaning::Plain),
    ("builtins.complex", Meaning::Plain),
    ("torch.storage.UntypedStorage", Meaning::Storage("U8")),
    ("torch.storage._UntypedStorage", Meaning::Storage("U8")),
    ("torch.UntypedStorage", Meaning::Storage("U8")),
];

/// Types by their name in `torch`, by that of their storage, and by that of safetensors.
const TYPES: &[(&[&str], &str, &str)] = &[
    (&["float32", "float"], "FloatStorage", "F32"),
    (&["float16", "half"], "HalfStorage", "F16"),
    (&["bfloat16"], "BFloat16Storage", "BF16"),
    (&["float64", "double"], "DoubleStorage", "F64"),
    (&["int64", "long"], "LongStorage", "I64"),
    (&["int32", "int"], "IntStorage", "I32"),
    (&["int16", "short"], "ShortStorage", "I16"),
    (&["int8"], "CharStorage", "I8"),
    (&["uint8"], "ByteStorage", "U8"),
    (&["bool"], "BoolStorage", "BOOL"),
    (&["complex64", "cfloat"], "ComplexFloatStorage", "C64"),
    (&["uint16"], "", "U16"),
    (&["uint32"], "", "U32"),
    (&["uint64"], "", "U64"),
    (&["float8_e4m3fn"], "", "F8_E4M3"),
    (&["float8_e5m2"], "", "F8_E5M2"),
    (&["float8_e4m3fnuz"], "", "F8_E4M3FNUZ"),
    (&["float8_e5m2fnuz"], "", "F8_E5M2FNUZ"),
    (&["float8_e8m0fnu"], "", "F8_E8M0"),
];

/// The meaning of `module.name`; `None`: not known to be harmless.
pub(super) fn find(module: &str, name: &str) -> Option<Meaning> {
    let of_module = |(full, _): &&(&str, Meaning)| {
        full.strip_suffix(name).and_then(|rest| rest.strip_suffix('.')).is_some_and(|rest| rest == module)
    };
    if let Some((_, meaning)) = GLOBALS.iter().find(of_module) {
        return Some(*meaning);
    }
    let stored = |(_, storage, _): &&(&[&str], &str, &str)| !storage.is_empty() && *storage == name;
    match module {
        // A class for each type of scalar.
        "numpy.dtypes" if name.ends_with("DType") => Some(Meaning::Plain),
        "torch" | "torch.cuda" | "torch.storage" => {
            let storage = TYPES.iter().find(stored).map(|(_, _, ty)| Meaning::Storage(ty));
            let named = |(names, _, _): &&(&[&str], &str, &str)| module == "torch" && names.contains(&name);
            storage.or_else(|| TYPES.iter().find(named).map(|(_, _, ty)| Meaning::Type(ty)))
        }
        _ => None,
    }
}
