"""The data of the guide to sources, written by the library of each format, and the servers that it reads from."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import sqlite3
import struct
import threading
import wave
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpupipe.ops._shared.samples import encoded
from tests.tools.damage import write
from tests.tools.packing import archive

COUNT = 5
NAMED = [{"n": i, "name": f"row {i}"} for i in range(COUNT)]
Given = Iterator[tuple[dict[str, Any], list[Any]]]
"""What a recipe finds: its names beside `gp`, `np` and `io`; and the elements that it has to give."""


def png(i: int) -> bytes:
    return encoded(np.full((4, 4, 3), i, np.uint8), "PNG")


def library(name: str) -> Any:
    """A library that the recipe needs; without it the test is skipped."""
    return pytest.importorskip(name, exc_type=ImportError)


# ---- files


def mnist(monkeypatch: pytest.MonkeyPatch) -> Given:
    images = np.random.default_rng(0).integers(0, 256, (COUNT, 28, 28), np.uint8)
    with gzip.open("train-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">4i", 2051, COUNT, 28, 28) + images.tobytes())
    with gzip.open("train-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">2i", 2049, COUNT) + bytes(range(COUNT)))
    yield {}, [(images[i][..., None], i) for i in range(COUNT)]


def libsvm(monkeypatch: pytest.MonkeyPatch) -> Given:
    Path("a.svm").write_text("+1 1:0.5 4:2\n-1 2:-1e-1\n+1 \n")
    yield {}, [([0.5, 0, 0, 2], 1), ([0, np.float32(-0.1), 0, 0], -1), ([0, 0, 0, 0], 1)]


def json_lines(monkeypatch: pytest.MonkeyPatch) -> Given:
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in NAMED))
    yield {}, NAMED


def sounds(monkeypatch: pytest.MonkeyPatch) -> Given:
    soundfile = library("soundfile")
    tones = [np.sin(np.arange(800 + 100 * i) / 9).astype(np.float32)[:, None] / 2 for i in range(3)]
    levels = [np.round(tone * 32768) / 32768 for tone in tones]
    soundfile.write("0.flac", tones[0], 8000, subtype="PCM_16")
    with wave.open("1.wav", "wb") as file:  # by another writer
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((levels[1] * 32768).astype("<i2").tobytes())
    soundfile.write("2.ogg", tones[2], 8000)
    ogg, _ = soundfile.read("2.ogg", dtype="float32", always_2d=True)
    yield {}, [(levels[0], 8000), (levels[1], 16000), (ogg, 8000)]


def dicom(monkeypatch: pytest.MonkeyPatch) -> Given:
    pydicom = library("pydicom")
    uid = library("pydicom.uid")
    for i in range(COUNT):
        file = pydicom.Dataset()
        file.file_meta = pydicom.dataset.FileMetaDataset()
        file.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
        file.file_meta.MediaStorageSOPClassUID = file.SOPClassUID = uid.SecondaryCaptureImageStorage
        file.file_meta.MediaStorageSOPInstanceUID = file.SOPInstanceUID = uid.generate_uid(entropy_srcs=[str(i)])
        file.PatientID, file.SamplesPerPixel, file.PhotometricInterpretation = f"p{i}", 1, "MONOCHROME2"
        file.Rows, file.Columns, file.BitsAllocated, file.BitsStored, file.HighBit = 3, 4, 16, 12, 11
        file.PixelRepresentation, file.PixelData = 0, np.full((3, 4), 1000 + i, "<u2").tobytes()
        file.save_as(f"{i}.dcm", enforce_file_format=True)
    yield {}, [(np.full((3, 4), 1000 + i), f"p{i}") for i in range(COUNT)]


def avro(monkeypatch: pytest.MonkeyPatch) -> Given:
    fields = [{"name": "n", "type": "long"}, {"name": "name", "type": "string"}]
    with open("a.avro", "wb") as file:
        library("fastavro").writer(file, {"type": "record", "name": "row", "fields": fields}, NAMED, codec="deflate")
    yield {}, NAMED


def orc(monkeypatch: pytest.MonkeyPatch) -> Given:
    library("pyarrow.orc").write_table(library("pyarrow").Table.from_pylist(NAMED), "a.orc")
    yield {}, NAMED


def video(monkeypatch: pytest.MonkeyPatch) -> Given:
    av = library("av")
    with av.open("a.mp4", "w") as file:
        stream = file.add_stream("mpeg4", rate=25)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for i in range(COUNT):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), 40 * i, np.uint8), format="rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    with av.open("a.mp4") as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    for i, frame in enumerate(frames):
        assert abs(float(frame.mean()) - 40 * i) < 5  # the codec rounds: to 4 levels here
    yield {}, frames


def zipped(monkeypatch: pytest.MonkeyPatch) -> Given:
    with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(COUNT):
            archive.writestr(f"{i}.png", png(i))
        archive.writestr("readme.txt", "none")
    yield {}, [png(i) for i in range(COUNT)]


def seven(monkeypatch: pytest.MonkeyPatch) -> Given:
    try:
        libarchive = library("libarchive")
    except (OSError, TypeError) as error:  # the wheel is only the binding
        pytest.skip(f"libarchive is not installed: {error}")
    with libarchive.file_writer("a.7z", "7zip") as archive:
        for i in range(COUNT):
            archive.add_file_from_memory(f"{i}.png", len(png(i)), png(i))
    yield {}, [(f"{i}.png", png(i)) for i in range(COUNT)]


def sql(monkeypatch: pytest.MonkeyPatch) -> Given:
    connection = sqlite3.connect("a.db")
    connection.execute("CREATE TABLE photos (id INTEGER PRIMARY KEY, label INTEGER, image BLOB)")
    with contextlib.closing(connection), connection:
        connection.executemany("INSERT INTO photos VALUES (?, ?, ?)", [(i, 10 * i, png(i)) for i in range(COUNT)])
    names: dict[str, Any] = {}
    yield names, [(10 * i, png(i)) for i in range(COUNT)]
    if "connection" in names:
        names["connection"].close()


def pcap(monkeypatch: pytest.MonkeyPatch) -> Given:
    with open("a.pcap", "wb") as file:
        writer = library("dpkt.pcap").Writer(file)
        for i in range(COUNT):
            writer.writepkt(b"packet %d" % i, ts=1000.5 + i)
    yield {}, [(1000.5 + i, b"packet %d" % i) for i in range(COUNT)]


# ---- servers


@contextmanager
def serving(handler: Any) -> Iterator[str]:
    """An HTTP server of this process; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def http(monkeypatch: pytest.MonkeyPatch) -> Given:
    library("aiohttp")

    class Ranges(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    Path("a.txt").write_bytes(b"".join(b"row %d\n" % i for i in range(COUNT)))
    with serving(partial(Ranges, directory=str(Path.cwd()))) as address:
        yield {"server": address}, [b"row %d" % i for i in range(COUNT)]


def prometheus(monkeypatch: pytest.MonkeyPatch) -> Given:
    values = [[15 * i, str(i / 2)] for i in range(COUNT)]
    series = {"metric": {"__name__": "up"}, "values": values}
    answer = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}}).encode()

    class Query(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path.startswith("/api/v1/query_range?query=up&") else 404)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            pass

    with serving(Query) as address:
        yield {"server": address}, [[15 * i, i / 2] for i in range(COUNT)]


def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


def s3(monkeypatch: pytest.MonkeyPatch) -> Given:
    server = library("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    s3fs, boto3, parquet = library("s3fs"), library("boto3"), library("pyarrow.parquet")
    credentials(monkeypatch)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        client = boto3.client("s3")
        client.create_bucket(Bucket="photos", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        for i, rows in enumerate((NAMED[:3], NAMED[3:])):
            out = io.BytesIO()
            parquet.write_table(library("pyarrow").Table.from_pylist(rows), out)
            client.put_object(Bucket="photos", Key=f"{i}.parquet", Body=out.getvalue())
        s3fs.S3FileSystem.clear_instance_cache()
        yield {}, [NAMED[i] for i in (0, 3, 1, 4, 2)]
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()


def kinesis(monkeypatch: pytest.MonkeyPatch) -> Given:
    moto, boto3 = library("moto"), library("boto3")
    credentials(monkeypatch)
    with moto.mock_aws():
        client = boto3.client("kinesis")
        client.create_stream(StreamName="photos", ShardCount=1)
        for i in range(COUNT):
            client.put_record(StreamName="photos", Data=png(i), PartitionKey="k")
        yield {}, [png(i) for i in range(COUNT)]


def kafka(monkeypatch: pytest.MonkeyPatch) -> Given:
    settings = {"bootstrap.servers": "none", "test.mock.num.brokers": 1}
    producer = library("confluent_kafka").Producer(settings)  # has the broker as long as it lives
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    for i in range(COUNT):
        producer.produce("photos", png(i), partition=0)
    assert producer.flush(10) == 0
    yield {"broker": f"{broker.host}:{broker.port}"}, [png(i) for i in range(COUNT)]


@contextmanager
def grpc_server(methods: dict[str, Any]) -> Iterator[str]:
    """A gRPC server; its address.

    Args:
        methods: for the path of each method, the type of its requests and what answers one: a message, or a list of
            them for a stream.
    """
    grpc = library("grpc")

    class Handler:
        def service(self, call: Any) -> Any:
            kind, answer = methods[call.method]
            read, write = kind.deserialize, lambda message: type(message).serialize(message)
            if call.method.endswith("/ReadRows"):
                return grpc.unary_stream_rpc_method_handler(lambda x, _: iter(answer(x)), read, write)
            return grpc.unary_unary_rpc_method_handler(lambda x, _: answer(x), read, write)

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def pubsub(monkeypatch: pytest.MonkeyPatch) -> Given:
    library("google.cloud.pubsub_v1")
    types = library("google.pubsub_v1").types
    left = {f"id {i}": png(i) for i in range(COUNT)}

    def pull(request: Any) -> Any:
        assert request.subscription == "projects/p/subscriptions/photos"
        first = list(left.items())[: request.max_messages]
        found = [{"ack_id": key, "message": {"data": data}} for key, data in first]
        return types.PullResponse(received_messages=found)

    def acknowledge(request: Any) -> Any:
        for key in request.ack_ids:
            del left[key]
        return types.PullResponse()  # no bytes, as those of an Empty

    path = "/google.pubsub.v1.Subscriber/"
    methods = {f"{path}Pull": (types.PullRequest, pull)}
    methods[f"{path}Acknowledge"] = types.AcknowledgeRequest, acknowledge
    with grpc_server(methods) as address:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address)
        yield {}, [png(i) for i in range(COUNT)]
    assert not left


def bigquery(monkeypatch: pytest.MonkeyPatch) -> Given:
    pa, bq, grpc = library("pyarrow"), library("google.cloud.bigquery_storage_v1"), library("grpc")
    types, services = bq.types, "google.cloud.bigquery_storage_v1.services"
    transport = library(f"{services}.big_query_read.transports").BigQueryReadGrpcTransport
    table = pa.Table.from_pylist(NAMED)
    schema = types.ArrowSchema(serialized_schema=table.schema.serialize().to_pybytes())

    def session(request: Any) -> Any:
        assert request.read_session.table == "projects/p/datasets/d/tables/photos"
        streams = [types.ReadStream(name="s/streams/0")]
        return types.ReadSession(name="s", data_format="ARROW", arrow_schema=schema, streams=streams)

    def read(request: Any) -> list[Any]:
        assert request.read_stream == "s/streams/0"
        batches = table.to_batches(max_chunksize=2)
        columns = [{"serialized_record_batch": batch.serialize().to_pybytes()} for batch in batches]
        pairs = zip(batches, columns, strict=True)
        return [types.ReadRowsResponse(row_count=rows.num_rows, arrow_record_batch=column) for rows, column in pairs]

    path = "/google.cloud.bigquery.storage.v1.BigQueryRead/"
    methods = {f"{path}CreateReadSession": (types.CreateReadSessionRequest, session)}
    methods[f"{path}ReadRows"] = types.ReadRowsRequest, read
    with grpc_server(methods) as address, grpc.insecure_channel(address) as channel:
        yield {"client": bq.BigQueryReadClient(transport=transport(channel=channel))}, NAMED


def mongodb(monkeypatch: pytest.MonkeyPatch) -> Given:
    client = library("mongomock").MongoClient()
    client.photos.labels.insert_many([dict(row) for row in NAMED[::-1]])
    yield {"client": client}, NAMED


def in_memory() -> str:
    """Move the files of the present folder into fsspec's storage in memory; the URL of their folder there."""
    folder = library("fsspec").filesystem("memory")
    for path in Path().iterdir():
        folder.pipe_file(f"/sources/{path.name}", path.read_bytes())
        path.unlink()
    return "memory://sources/"


FILES: dict[str, Callable[[pytest.MonkeyPatch], Given]] = {
    "MNIST": mnist, "LIBSVM": libsvm, "JSON lines": json_lines, "WAV, FLAC, OGG": sounds, "DICOM": dicom, "Avro": avro,
    "ORC": orc, "Video": video, "Zip": zipped, "7z, ISO, cpio": seven, "Pcap": pcap,
}  # fmt: skip
"""Recipes that read files, of any storage."""

RECIPES = {
    **FILES, "SQL": sql, "SQL by key": sql, "S3": s3, "HTTP": http, "Kafka": kafka, "Kinesis": kinesis,
    "Pub/Sub": pubsub, "BigQuery": bigquery, "Prometheus": prometheus, "MongoDB": mongodb,
}  # fmt: skip


def built_in() -> None:
    """Write the files that the sources that are built in name, each of three elements."""
    write(Path("a.tfrecord"), [b"0", b"1", b"2"])
    Path("a.txt").write_bytes(b"0\n1\n2\n")
    Path("a.bin").write_bytes(bytes(12))
    Path("a.csv").write_bytes(b"0,a\n1,b\n2,c\n")
    np.savez("a.npz", n=np.arange(3))
    members = ((f"{i}.{kind}", data) for i in range(3) for kind, data in (("png", png(i)), ("cls", b"%d" % i)))
    archive(Path("a.tar"), *members)
    for i in range(3):
        folder = Path("photos") / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.png").write_bytes(png(i))


def of_a_library(code: str) -> dict[str, Any]:
    """What a line needs beside those files: the libraries that it names, and the file that one of them writes."""
    if "a.parquet" in code:
        library("pyarrow.parquet").write_table(library("pyarrow").table({"n": [0, 1, 2]}), "a.parquet")
    if "a.arrow" in code:
        library("pyarrow.feather").write_feather(library("pyarrow").table({"n": [0, 1, 2]}), "a.arrow")
    if "a.h5" in code:
        with library("h5py").File("a.h5", "w") as file:
            file["n"] = np.arange(3)
    if "a.lmdb" in code:
        with library("lmdb").open("a.lmdb") as database, database.begin(write=True) as transaction:
            for i in range(3):
                transaction.put(b"%d" % i, b"x")
    return {name: library(name) for name in ("datasets", "pandas") if f"{name}." in code}
