"""Writes what the programs of make-traces.sh work on. Each input has a seed of its own, so that the same bytes come out each time.

python3 inputs.py FOLDER
"""

import math
import random
import sqlite3
import struct
import sys
from pathlib import Path


def c_file(path: Path) -> None:
    """100 functions with loops, branches and calls of functions before them: work for a compiler's optimisation."""
    draw = random.Random(1)
    with path.open("w") as file:
        file.write("extern int sink[1024];\nint f0(int a, int b) { return a * 3 + b; }\n")
        for index in range(1, 101):
            file.write(f"int f{index}(int a, int b)\n{{\n    int x = a ^ {draw.randrange(1 << 16)}, y = b + {index};\n")
            for step in range(draw.randint(8, 16)):
                constant, callee = draw.randrange(1, 1000), draw.randrange(index)
                file.write(
                    draw.choice(
                        [
                            f"    for (int i = 0; i < (a & 63); i++) {{ x += sink[(i + {constant}) & 1023] * y; }}\n",
                            f"    if (x > {constant}) {{ y -= x / {constant}; }} else {{ x += y << {constant % 7}; }}\n",
                            f"    y += f{callee}(x + {constant}, y);\n",
                            f"    switch (y & 3) {{ case 0: x += {constant}; break; case 1: y ^= x; break; "
                            f"default: sink[{step}] = x; }}\n",
                        ]
                    )
                )
            file.write("    return x + y;\n}\n")


def database(path: Path) -> None:
    """40000 customers, 4000 products and 120000 orders: about 10 MB with the index of customers by e-mail address."""
    draw = random.Random(2)
    base = sqlite3.connect(path)
    base.executescript(
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, email TEXT, region INTEGER, note TEXT);"
        "CREATE TABLE products (id INTEGER PRIMARY KEY, price INTEGER, name TEXT);"
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT, product INTEGER, quantity INTEGER);"
    )
    emails = [f"{draw.getrandbits(40):010x}@example.org" for _ in range(40000)]
    customers = ((key, email, draw.randrange(50), "n" * draw.randrange(80)) for key, email in enumerate(emails))
    base.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", customers)
    products = ((key, draw.randrange(1, 1000), f"product {key}") for key in range(4000))
    base.executemany("INSERT INTO products VALUES (?, ?, ?)", products)
    orders = ((key, draw.choice(emails), draw.randrange(4000), draw.randrange(1, 10)) for key in range(120000))
    base.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", orders)
    base.execute("CREATE INDEX by_email ON customers (email)")
    base.commit()
    base.close()


def text(path: Path) -> None:
    """32 MB of words; frequent words are drawn more often, as in a language."""
    draw = random.Random(3)
    letters = "etaoinshrdlcumwfgypbvk"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 10))) for _ in range(20000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    with path.open("w") as file:
        for _ in range(32):
            written = " ".join(draw.choices(words, weights, k=200000))
            file.write(written[:1000000] + "\n")


def sound(path: Path) -> None:
    """20 s of 16-bit stereo at 44.1 kHz: three tones that swell, and noise."""
    draw = random.Random(4)
    frames = bytearray()
    for at in range(20 * 44100):
        seconds = at / 44100
        swell = 0.6 + 0.4 * math.sin(seconds)
        left = 9000 * swell * math.sin(2765 * seconds) + 4000 * math.sin(4147 * seconds) + draw.gauss(0, 200)
        right = 9000 * math.sin(2074 * seconds) + 3000 * swell * math.sin(6220 * seconds) + draw.gauss(0, 200)
        frames += struct.pack("<hh", int(left), int(right))
    head = struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", 36 + len(frames), b"WAVEfmt ", 16, 1, 2, 44100, 176400, 4, 16,
                       b"data", len(frames))  # fmt: skip
    path.write_bytes(head + frames)


def lines(path: Path) -> None:
    """300000 lines with a random key of 16 digits each."""
    draw = random.Random(5)
    path.write_text("".join(f"{draw.getrandbits(64):016x} {index}\n" for index in range(300000)))


def keys(path: Path) -> None:
    """20000 random texts of 10 digits, which are searched in the lines."""
    draw = random.Random(7)
    path.write_text("".join(f"{draw.getrandbits(40):010x}\n" for _ in range(20000)))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    c_file(folder / "functions.c")
    database(folder / "orders.db")
    text(folder / "words.txt")
    sound(folder / "tones.wav")
    lines(folder / "lines.txt")
    keys(folder / "keys.txt")
