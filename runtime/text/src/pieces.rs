//! Single tokens: how the vocabulary writes them, and the bytes they stand for.

use tokenizers::{Decoder, DecoderWrapper};

use crate::{Error, Kind, Result, Tokenizer, alphabet};

/// Stands before and after a token while it is decoded: decoders treat the first and the last token
/// specially, and these take that place.
const NEIGHBOUR: &str = "x";

impl Tokenizer {
    /// The vocabulary's entry (`Ġthe`, `▁the`, `<0x0A>`); `None`: the tokenizer has no such token.
    pub fn piece(&self, id: i32) -> Option<String> {
        self.inner.id_to_token(u32::try_from(id).ok()?)
    }

    /// Whether it is a special token, which texts leave out unless they are asked for it.
    pub fn is_special(&self, id: i32) -> bool {
        self.piece(id).is_some_and(|piece| self.inner.get_added_vocabulary().is_special_token(&piece))
    }

    /// The byte that a token of byte fallback (`<0x0A>`) stands for.
    pub fn byte(&self, id: i32) -> Option<u8> {
        let falls_back = |d: &DecoderWrapper| matches!(d, DecoderWrapper::ByteFallback(_));
        if self.is_added(id) || !self.decoders().iter().any(falls_back) {
            return None;
        }
        let piece = self.piece(id)?;
        let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
        if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
    }

    /// The bytes that a token adds to a text in the middle of others; of a special token its name.
    /// Not always whole characters. Empty if the tokenizer has no such token.
    ///
    /// # Errors
    /// The decoder fails.
    pub fn bytes(&self, id: i32) -> Result<Vec<u8>> {
        let Some(piece) = self.piece(id) else { return Ok(Vec::new()) };
        if self.is_added(id) {
            return Ok(piece.into_bytes());
        }
        if let Some(byte) = self.byte(id) {
            return Ok(vec![byte]);
        }
        if self.decoders().iter().any(|d| matches!(d, DecoderWrapper::ByteLevel(_))) {
            // As the decoder: characters outside its alphabet stand for themselves.
            let bytes: Option<Vec<u8>> = piece.chars().map(alphabet::byte).collect();
            return Ok(bytes.unwrap_or_else(|| piece.into_bytes()));
        }
        let Some(decoder) = self.inner.get_decoder() else { return Ok(piece.into_bytes()) };
        let mut tokens = vec![NEIGHBOUR.to_owned(), piece];
        // WordPiece writes a space before every word, which would be the neighbour's.
        let followed = !self.decoders().iter().any(|d| matches!(d, DecoderWrapper::WordPiece(_)));
        tokens.extend(followed.then(|| NEIGHBOUR.to_owned()));
        let text = decoder.decode(tokens).map_err(|e| Error::new(Kind::Internal, format!("detokenizing: {e}")))?;
        let inner = text.strip_prefix(NEIGHBOUR).unwrap_or(&text);
        let inner = inner.strip_suffix(NEIGHBOUR).filter(|_| followed).unwrap_or(inner);
        Ok(inner.as_bytes().to_vec())
    }

    fn is_added(&self, id: i32) -> bool {
        u32::try_from(id).is_ok_and(|id| self.inner.get_added_vocabulary().get_added_tokens_decoder().contains_key(&id))
    }

    /// The decoder's parts.
    fn decoders(&self) -> &[DecoderWrapper] {
        match self.inner.get_decoder() {
            Some(DecoderWrapper::Sequence(parts)) => parts.get_decoders(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        }
    }
}
