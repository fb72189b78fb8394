"""Bits near their entropy: a coder for the difference between two tasks' gates.

The bits are cut into lanes of about 8,192. Each lane has one probability of a 1 (flips differ from site to site) and
is coded by rANS (Duda 2013), four bits a symbol, all lanes side by side in numpy. Only integers are used, so a code
reads back exactly on every machine. Bits that do not compress are kept as they are.

    code = b"\\x00" + packed bits
         | b"\\x01" + level of each lane u8 [lanes] + last state of each lane u32 [lanes] + words u16, little-endian
"""

from __future__ import annotations

import numpy as np

_RAW, _CODED = b"\x00", b"\x01"
_LANE_BITS = 8192
_PRECISION = 15  # bits; the frequencies of the 16 symbols add up to 2**15
_LOW = 1 << 16  # a state between two symbols lies in [2**16, 2**32)

# Probabilities of a 1 in 1/65536, a quarter apart in log-odds, from 1/2 down; the upper half mirrors them.
_HALF = (
    32768, 28693, 24743, 21025, 17625, 14595, 11955, 9702, 7812, 6249, 4971, 3938, 3108, 2446, 1921, 1506,
    1179, 922, 720, 562, 439, 342, 267, 208, 162, 126, 98, 77, 60, 47, 36, 28,
)  # fmt: skip
_LEVELS = tuple(reversed(_HALF)) + tuple(65536 - p for p in _HALF[1:])  # rising


def pack(bits: np.ndarray) -> np.ndarray:
    """Bits, 8 a byte, first bit lowest. bits: bool [n]; returns uint8 [ceil(n/8)]."""
    return np.packbits(bits, bitorder="little")


def unpack(packed: np.ndarray, count: int) -> np.ndarray:
    """The opposite of `pack`. Raises `ValueError` if the size is wrong or a bit beyond `count` is set."""
    if packed.size != (count + 7) // 8:
        raise ValueError(f"{packed.size} bytes cannot hold {count} packed gates")
    bits = np.unpackbits(packed, bitorder="little")
    if bits[count:].any():
        raise ValueError("bits beyond the last gate are set")
    return bits[:count].astype(bool)


def encode(bits: np.ndarray) -> bytes:
    """A code of at most the packed size and one byte. bits: bool [n]."""
    raw = pack(bits)
    if bits.size == 0:
        return _RAW
    symbols = _to_lanes(raw, bits.size)  # [steps, lanes]
    levels = _levels_of(symbols)
    frequency, start, _, table = _tables(levels)
    frequency, start = frequency[table * 16 + symbols], start[table * 16 + symbols]  # [steps, lanes]

    states = np.full(levels.size, _LOW, np.int64)
    chunks = []
    for step in range(len(symbols) - 1, -1, -1):  # the decoder runs forwards
        f = frequency[step]
        full = np.flatnonzero(states >= f << (32 - _PRECISION))
        if full.size:
            chunks.append(states[full].astype(np.uint16))  # the low 16 bits
            states[full] >>= 16
        whole = states // f
        states = (whole << _PRECISION) + (states - whole * f) + start[step]
    words = np.concatenate(chunks[::-1]) if chunks else np.empty(0, np.uint16)
    code = _CODED + levels.tobytes() + states.astype("<u4").tobytes() + words.astype("<u2").tobytes()
    return code if len(code) <= raw.size else _RAW + raw.tobytes()


def decode(code: bytes, count: int) -> np.ndarray:
    """The bits given to `encode`, bool [count]. Raises `ValueError` if it is no code of so many bits."""
    if code[:1] == _RAW:
        return unpack(np.frombuffer(code, np.uint8, offset=1), count)
    lanes, steps = _shape(count)
    if code[:1] != _CODED or count == 0 or len(code) < 1 + 5 * lanes or (len(code) - 1 - 5 * lanes) % 2:
        raise ValueError(f"it is no code of {count} gates")
    levels = np.frombuffer(code, np.uint8, lanes, 1)
    if levels.max() >= len(_LEVELS):
        raise ValueError("it names an unknown probability")
    states = np.frombuffer(code, "<u4", lanes, 1 + lanes).astype(np.int64)
    words = np.frombuffer(code, "<u2", offset=1 + 5 * lanes).astype(np.int64)
    return _from_lanes(_decode_lanes(levels, states, words, steps), count)


def _decode_lanes(levels: np.ndarray, states: np.ndarray, words: np.ndarray, steps: int) -> np.ndarray:
    """The symbols, uint8 [steps, lanes]. Raises `ValueError` unless all words are used and all lanes end at rest."""
    frequency, start, symbol_at, table = _tables(levels)
    # by slot: the frequency of its symbol, and how far it lies behind that symbol's first slot
    place = np.repeat(np.arange(len(frequency) // 16), 1 << _PRECISION) * 16 + symbol_at
    often = frequency[place]
    behind = np.tile(np.arange(1 << _PRECISION), len(frequency) // 16) - start[place]
    first = table << _PRECISION
    slots = np.empty((steps, levels.size), np.int64)
    used, mask = 0, (1 << _PRECISION) - 1
    for step in range(steps):
        slot = np.bitwise_and(states, mask, out=slots[step])
        slot += first
        states >>= _PRECISION
        states *= often[slot]
        states += behind[slot]
        empty = (states < _LOW).nonzero()[0]
        if empty.size:
            taken = words[used : used + empty.size]
            used += empty.size
            if taken.size < empty.size:
                raise ValueError("the code ends too early")
            states[empty] = (states[empty] << 16) | taken
    if used != words.size or (states != _LOW).any():
        raise ValueError("the code does not end where it should")
    return symbol_at[slots]


def _shape(count: int) -> tuple[int, int]:
    """(lanes, symbols a lane) for so many bits; fewer than one symbol a lane is padding."""
    symbols = (count + 3) // 4
    lanes = max(1, round(count / _LANE_BITS))
    return lanes, -(-symbols // lanes)


def _to_lanes(packed: np.ndarray, count: int) -> np.ndarray:
    """Packed bits as symbols of four, one lane a column: uint8 [steps, lanes]."""
    lanes, steps = _shape(count)
    symbols = np.zeros((lanes * steps + 1) // 2 * 2, np.uint8)
    symbols[0 : 2 * packed.size : 2] = packed[: symbols.size // 2] & 15
    symbols[1 : 2 * packed.size : 2] = packed[: symbols.size // 2] >> 4
    return np.ascontiguousarray(symbols[: lanes * steps].reshape(lanes, steps).T)


def _from_lanes(symbols: np.ndarray, count: int) -> np.ndarray:
    flat = symbols.T.ravel()
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    packed = flat[0::2] | flat[1::2] << 4
    size = (count + 7) // 8
    if packed[size:].any():
        raise ValueError("bits beyond the last gate are set")
    return unpack(packed[:size], count)


def _levels_of(symbols: np.ndarray) -> np.ndarray:
    """The level nearest to the share of ones in each lane, uint8 [lanes]."""
    ones_in = np.array([bin(symbol).count("1") for symbol in range(16)], np.int64)
    share = ones_in[symbols].sum(0) * 65536 // (4 * len(symbols))
    between = (np.array(_LEVELS[:-1]) + np.array(_LEVELS[1:])) // 2
    return np.searchsorted(between, share).astype(np.uint8)


def _tables(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One table a level in use: frequency and start of each symbol, int64 [tables*16], the symbol of each slot,
    uint8 [tables*2**15], and the table of each lane, int64 [lanes]."""
    used, table = np.unique(levels, return_inverse=True)
    frequency = np.array([_frequencies(_LEVELS[level]) for level in used], np.int64)  # [tables, 16]
    start = np.cumsum(frequency, 1) - frequency
    symbol_at = np.concatenate([np.repeat(np.arange(16, dtype=np.uint8), row) for row in frequency])
    return frequency.ravel(), start.ravel(), symbol_at, table


def _frequencies(p: int) -> list[int]:
    """How often each symbol of four independent bits is expected among 2**15, each at least once."""
    weights = [p ** bin(s).count("1") * (65536 - p) ** (4 - bin(s).count("1")) for s in range(16)]
    found = [max(1, (weight << _PRECISION) >> 64) for weight in weights]
    found[weights.index(max(weights))] += (1 << _PRECISION) - sum(found)
    return found
