//! Which model a checkpoint holds: its class, nested and old configurations, the requested output.

pub(crate) mod chosen_output;
pub(crate) mod draft_head;
pub(crate) mod drafter;
pub(crate) mod find_arch;
pub(crate) mod model;
pub(crate) mod nested;
pub(crate) mod normal;
pub(crate) mod options;
pub(crate) mod other_modalities;
pub(crate) mod plain_attention;
pub(crate) mod state_spaces;
pub(crate) mod tensor_roles;
pub(crate) mod unsupported;
