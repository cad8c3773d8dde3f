#!/usr/bin/env python3
"""Writes jpeg.safetensors: JPEG files as bytes, and their pixels (channels, H, W) as Pillow decodes them. Also the corpus of fuzz/jpeg."""

import io
import pathlib

import numpy
from PIL import Image
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent


def picture(height, width, channels):
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [128 + 100 * numpy.sin(0.3 * x + c) * numpy.cos(0.2 * y - c) for c in range(channels)]
    pixels = numpy.stack(planes, axis=-1).clip(0, 255).astype(numpy.uint8)
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels)


def encoded(image, **options):
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def resized(data, height, width):
    at = data.index(b"\xff\xc0") + 5  # in the frame's header
    return data[:at] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + data[at + 4 :]


CASES = {
    "grey": encoded(picture(9, 13, 1), quality=85),
    "colour": encoded(picture(17, 11, 3), quality=90, subsampling="4:4:4"),
    "halved": encoded(picture(19, 21, 3), quality=75, subsampling="4:2:0"),
    "progressive": encoded(picture(12, 20, 3), quality=60, progressive=True),
    "restarts": encoded(picture(24, 40, 1), quality=50, restart_marker_blocks=2),
}
REFUSED = {"cmyk": encoded(picture(8, 8, 3).convert("CMYK"))}

if __name__ == "__main__":
    tensors = {}
    corpus = HERE.parent / "fuzz/corpus/jpeg"
    corpus.mkdir(parents=True, exist_ok=True)
    for name, data in CASES.items():
        image = numpy.asarray(Image.open(io.BytesIO(data)))
        image = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
        tensors[f"{name}.file"] = numpy.frombuffer(data, numpy.uint8)
        tensors[f"{name}.pixels"] = numpy.ascontiguousarray(image)
        (corpus / f"good-{name}").write_bytes(data)
    for name, data in REFUSED.items():
        tensors[f"{name}.file"] = numpy.frombuffer(data, numpy.uint8)
        (corpus / name).write_bytes(data)
    grey, halved, progressive = CASES["grey"], CASES["halved"], CASES["progressive"]
    scan = progressive.rindex(b"\xff\xda")
    hostile = {
        "truncated": halved[: len(halved) // 2],
        "no-end": grey[:-2],
        "header-only": grey[:4],
        "declares-65500": resized(grey, 65500, 65500),
        "declares-tall": resized(grey, 60000, 1),
        "declares-zero": resized(grey, 0, 8),
        "many-scans": progressive[:scan] + progressive[scan:-2] * 200 + progressive[-2:],
        "arithmetic": grey.replace(b"\xff\xc0", b"\xff\xc9"),
        "lossless": grey.replace(b"\xff\xc0", b"\xff\xc3"),
        "png": b"\x89PNG\r\n\x1a\n",
        "flipped": halved[:-40] + bytes(255 - b for b in halved[-40:-30]) + halved[-30:],
        "after-end": grey + b"more",
    }
    for name, data in hostile.items():
        (corpus / name).write_bytes(data)
    save_file(tensors, HERE / "jpeg.safetensors")
