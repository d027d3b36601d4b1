//! Parsing states of sequences. Kinds of states read themselves.

use super::parse::{Parsed, Parser};
use crate::kv::{First, KvDType, KvSpec};
use crate::state::StateSpec;

impl Parser<'_> {
    /// A state of any kind, of those that the table has.
    pub fn state_spec(&mut self) -> Parsed<StateSpec> {
        StateSpec::read(self).unwrap_or_else(|| Ok(self.kv_spec()?.into()))
    }

    /// `name=[16, 32]`
    pub fn field_sizes(&mut self, name: &str) -> Parsed<Vec<usize>> {
        self.expect_word(name)?;
        self.expect(b'=')?;
        self.expect(b'[')?;
        self.list(b']', |p| p.size("a whole number"))
    }

    /// `kv<f16, 4x32, window 4096>`, `kv<f16, 4x48/32>`, `kv<f16, 1x576/512, latent>`
    pub fn kv_spec(&mut self) -> Parsed<KvSpec> {
        self.expect_word("kv")?;
        self.expect(b'<')?;
        let Some(dtype) = KvDType::parse(self.peek_word()) else {
            let names: Vec<&'static str> = KvDType::ALL.iter().map(|(_, n)| *n).collect();
            return Err(self.one_of("an element type of keys and values", &names));
        };
        self.next();
        self.expect(b',')?;
        let kv_heads = self.size("`heads x head size`, as in `8x64`")?;
        // `8x64` is the number 8 and the word `x64`.
        let by = self.peek_word().strip_prefix('x').and_then(|n| n.parse().ok());
        let Some(key_dim) = by else { return Err(self.unexpected("`x` and the head size, as in `8x64`")) };
        self.next();
        let value_dim = if self.eat(b'/') { self.size("the size of a value, as in `8x192/128`")? } else { key_dim };
        let mut spec =
            KvSpec { dtype, kv_heads, key_dim, value_dim, latent: false, window: None, every: 1, first: None };
        let mut more = self.eat(b',');
        if more && self.eat_word("latent") {
            spec.latent = true;
            more = self.eat(b',');
        }
        if more && self.eat_word("window") {
            spec.window = Some(self.size("the window's length")?);
            more = self.eat(b',');
        }
        if more && self.eat_word("every") {
            spec.every = self.size("how many tokens have a row")?;
            more = self.eat(b',');
        }
        if more && self.eat_word("first") {
            let rows = self.size("how many tokens have rows")?;
            self.expect(b',')?;
            self.expect_word("behind")?;
            spec.first = Some(First { rows, behind: self.size("the distance from which on they are seen")? });
        } else if more {
            self.expect_word("window")?;
        }
        self.expect(b'>')?;
        Ok(spec)
    }
}
