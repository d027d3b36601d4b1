//! Machines as tables have them, published figures, and the bound that rates give for the same configuration.

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Bytes of memory per second.
    pub memory: f64,
    /// Bytes of keys and values per second; as [`Machine::memory`] where attention is not computed in it.
    pub states: f64,
    /// Bytes of memory.
    pub bytes: f64,
    /// Operations per second (a multiply-add is two) of rows of 16 bits, and of 32 where it computes them so.
    pub wide: f64,
    /// The same of rows of 8 bits.
    pub narrow: f64,
    /// Watts at most, where its maker states them.
    pub watts: Option<f64>,
    /// Seconds to launch a kernel; 0: not known.
    pub launch: f64,
    /// Where these figures are from.
    pub sheet: &'static str,
    /// A published figure.
    pub published: Published,
}

/// A figure that was published for a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Published {
    /// One that can be computed.
    Of(Figure),
    /// None was found: why.
    NotFound(&'static str),
}

/// A published figure, and its configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The model.
    pub decoder: Decoder,
    /// Bits of a weight, and of a key or value.
    pub bits: (f64, f64),
    /// How many of the machine, and how they share the work.
    pub cards: Cards,
    /// Sequences at once; `None`: as many as the memory holds.
    pub batch: Option<f64>,
    /// Tokens of each prompt.
    pub prompt: f64,
    /// Tokens of each text.
    pub output: f64,
    /// Whether the figure counts the time of prompts.
    pub prompts: bool,
    /// The figure: generated tokens per second, of all cards.
    pub tokens_per_second: f64,
    /// Assumptions that its source does not state.
    pub note: &'static str,
    /// Its source.
    pub source: &'static str,
}

/// How many machines compute a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cards {
    /// So many, each a part of every layer.
    Together(f64),
    /// As many as hold it, one layer after another.
    InTurn,
}

/// A dense decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoder {
    /// Its name.
    pub name: &'static str,
    /// Parameters of matrices that a token is multiplied by.
    pub multiplied: f64,
    /// Layers.
    pub layers: f64,
    /// Columns of the residual stream, and of all heads.
    pub hidden: f64,
    /// Elements of keys and values of a token in a layer.
    pub state: f64,
}

/// Rates of a machine, for the cost of launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes of memory per second.
    pub memory: f64,
    /// Bytes of keys and values per second.
    pub states: f64,
    /// Multiply-adds per second of rows of 16 bits and more.
    pub wide: f64,
    /// Multiply-adds per second of rows of 8 bits.
    pub narrow: f64,
    /// Seconds to launch a kernel.
    pub launch: f64,
}

impl Machine {
    /// Its rates.
    pub fn rates(&self) -> Rates {
        Rates {
            memory: self.memory,
            states: self.states,
            wide: self.wide / 2.0,
            narrow: self.narrow / 2.0,
            launch: self.launch,
        }
    }
}

impl Figure {
    /// Tokens per second at the rates of a machine's data sheet, with every byte moved and every operation done once
    /// and nothing else: a bound. Prompts come first, then all sequences decode together.
    pub fn bound(&self, machine: &Machine) -> f64 {
        let (weights, state) = (self.bits.0 / 8.0 * self.decoder.multiplied, self.state());
        let cards = match self.cards {
            Cards::Together(cards) => cards,
            // At any time one of them works on a sequence.
            Cards::InTurn => 1.0,
        };
        let batch = self.batch(machine);
        let rate = if self.bits.0 <= 8.0 { machine.narrow } else { machine.wide } / 2.0;
        // So many tokens of each sequence, each attending to so much context on average.
        let step = |tokens: f64, context: f64| {
            let macs =
                batch * tokens * (self.decoder.multiplied + 2.0 * self.decoder.layers * self.decoder.hidden * context);
            // A sequence's keys and values are read once for all its tokens.
            let memory = weights / machine.memory + batch * context * state / machine.states;
            memory.max(macs / rate) / cards
        };
        let prefill = if self.prompts { step(self.prompt, self.prompt / 2.0) } else { 0.0 };
        batch * self.output / (prefill + self.output * step(1.0, self.prompt + self.output / 2.0))
    }

    /// Bytes of keys and values of a token.
    fn state(&self) -> f64 {
        self.bits.1 / 8.0 * self.decoder.layers * self.decoder.state
    }

    /// Sequences at once.
    fn batch(&self, machine: &Machine) -> f64 {
        let weights = self.bits.0 / 8.0 * self.decoder.multiplied;
        let cards = if let Cards::Together(cards) = self.cards { cards } else { f64::INFINITY };
        let each = self.state() * (self.prompt + self.output);
        self.batch.unwrap_or_else(|| ((machine.bytes * cards - weights) / each).floor().max(1.0))
    }
}
