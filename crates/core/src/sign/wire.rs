//! SSH's wire format, read strictly: lengths are checked before anything is taken, nothing is left over.
//!
//! Called by the key and signature readers, and by the agent for the file of its host key. It never
//! allocates from a length it has not checked, and it accepts one encoding of each value only, so that a
//! whole key can be compared as bytes.

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A length runs past the end.
    #[error("a length runs past the end")]
    Short,
    /// Bytes follow the last value.
    #[error("bytes follow the last value")]
    Trailing,
    /// A number is negative, padded or too large.
    #[error("a number is negative, padded or too large")]
    Number,
}

/// What is still to be read.
#[derive(Debug, Clone, Copy)]
pub struct WireReader<'a> {
    rest: &'a [u8],
}

impl<'a> WireReader<'a> {
    /// All of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// So many bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// As many bytes as the array has.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("`take` gives exactly the length asked for"))
    }

    /// One byte.
    pub fn byte(&mut self) -> Result<u8, WireError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// A number of 32 bits, the highest byte first.
    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// A length and so many bytes.
    pub fn string(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.u32()?;
        self.take(usize::try_from(length).map_err(|_| WireError::Short)?)
    }

    /// A number of at most 256 bits in its one form: no needless zero in front, never negative.
    pub fn number(&mut self) -> Result<[u8; 32], WireError> {
        let digits = match self.string()? {
            // The zero in front is there exactly when the number would read as negative without it.
            [0, digits @ ..] if digits.first().is_some_and(|first| *first >= 0x80) => digits,
            digits if digits.first().is_some_and(|first| (1..0x80).contains(first)) => digits,
            _ => return Err(WireError::Number),
        };
        let mut number = [0; 32];
        let start = number.len().checked_sub(digits.len()).ok_or(WireError::Number)?;
        number[start..].copy_from_slice(digits);
        Ok(number)
    }

    /// Nothing may be left.
    pub fn finish(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing) }
    }
}

/// Appends a length and the bytes.
pub fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("what evenkeel writes is far below 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_string(&mut out, bytes);
        out
    }

    #[test]
    fn a_length_past_the_end_is_refused_before_anything_is_taken() {
        for length in [1_u32, 0x7fff_ffff, 0xffff_ffff] {
            assert_eq!(WireReader::new(&length.to_be_bytes()).string(), Err(WireError::Short));
        }
        assert_eq!(WireReader::new(&[0, 0, 0]).string(), Err(WireError::Short));
    }

    #[test]
    fn a_number_has_one_form() {
        let good: [(&[u8], u8); 3] = [(&[1], 1), (&[0x7f], 0x7f), (&[0, 0x80], 0x80)];
        for (digits, last) in good {
            assert_eq!(WireReader::new(&string(digits)).number().map(|n| n[31]), Ok(last));
        }
        let bad: [&[u8]; 6] = [&[], &[0], &[0, 1], &[0x80], &[0, 0, 0x80], &[1; 33]];
        for digits in bad {
            assert_eq!(
                WireReader::new(&string(digits)).number(),
                Err(WireError::Number),
                "{digits:?}"
            );
        }
        let mut full = vec![0];
        full.extend([0xff; 32]);
        assert_eq!(WireReader::new(&string(&full)).number(), Ok([0xff; 32]));
    }

    #[test]
    fn what_is_left_over_is_refused() {
        let mut reader = WireReader::new(&[0, 0, 0, 0, 9]);
        assert_eq!(reader.string(), Ok(&[][..]));
        assert_eq!(reader.finish(), Err(WireError::Trailing));
    }
}
