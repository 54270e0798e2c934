/* The per-record loops of the record batch codec (Kafka's record batch v2, magic 2).
 *
 * The functions are those of kernel.Kernel; pure.py is the same in Python and the tests hold both
 * equal: same results, same errors for the same bytes. One call handles a whole fetch or batch.
 *
 * Rules: every read is bounded by the record it belongs to, sizes are compared before anything is
 * allocated, no byte of the input is read twice for a decision (it may be a writable buffer), and
 * between the two passes of an encoder no Python code runs, so the lists cannot change.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_SSE42 1
#include <nmmintrin.h>
#endif

#define HEADER_SIZE 61
#define LENGTH_OVERHEAD 12
#define CRC_OFFSET 17
#define ATTRIBUTES_OFFSET 21
#define MAGIC 2
#define COMPRESSION_MASK 0x07
#define LOG_APPEND_TIME 0x08
#define CONTROL 0x20
#define SMALLEST_RECORD 7
#define LARGEST_BATCH (INT32_MAX + (uint64_t)LENGTH_OVERHEAD)
#define LARGEST_BASE_OFFSET (INT64_MAX - ((int64_t)1 << 31))
#define LARGEST_TIMESTAMP (INT64_MAX - 1)
#define BAD_NUMBER "a number is cut off or too long"

typedef struct {
    PyObject *layout; /* the module with the errors */
    uint32_t crc_table[8][256];
    int has_sse42;
} module_state;

static module_state *state_of(PyObject *module) { return PyModule_GetState(module); }

/* Raise `type` with a message; -1, so that a caller can return it. */
static int refuse(PyObject *type, const char *message) {
    PyErr_SetString(type, message);
    return -1;
}

/* Raise the exception that a factory of the layout module makes of the arguments; -1. */
static int raise_made(const module_state *state, const char *factory, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    PyObject *make = PyObject_GetAttrString(state->layout, factory);
    PyObject *values = make == NULL ? NULL : Py_VaBuildValue(format, arguments);
    PyObject *error = values == NULL ? NULL : PyObject_CallObject(make, values);
    va_end(arguments);
    if (error != NULL) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(values);
    Py_XDECREF(make);
    return -1;
}

static int corrupt(const module_state *state, const char *message) {
    return raise_made(state, "CorruptBatch", "(s)", message);
}

/* --- integers ------------------------------------------------------------------------------- */

static inline uint32_t load32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t load64(const uint8_t *p) {
    return (uint64_t)load32(p) << 32 | load32(p + 4);
}

static inline uint32_t load32_little(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void store16(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static inline void store32(uint8_t *p, uint32_t v) {
    store16(p, v >> 16);
    store16(p + 2, v);
}

static inline void store64(uint8_t *p, uint64_t v) {
    store32(p, (uint32_t)(v >> 32));
    store32(p + 4, (uint32_t)v);
}

static inline uint64_t zigzag(int64_t v) { return (uint64_t)v << 1 ^ (uint64_t)(v >> 63); }

static inline int64_t unzigzag(uint64_t v) { return (int64_t)(v >> 1 ^ (0 - (v & 1))); }

static inline unsigned varint_size(int64_t v) {
    return (unsigned)(70 - __builtin_clzll(zigzag(v) | 1)) / 7;
}

static inline uint8_t *put_varint(uint8_t *p, int64_t v) {
    uint64_t z = zigzag(v);
    for (; z >= 0x80; z >>= 7) *p++ = (uint8_t)(z | 0x80);
    *p++ = (uint8_t)z;
    return p;
}

/* Bytes not yet read of a section or a record. */
typedef struct {
    const uint8_t *p;
    const uint8_t *end;
} span;

/* A zigzag varint of at most `bits` (32 or 64) bits; 0, or -1 when it is cut off or too long. */
static inline int get_number(span *in, int bits, int64_t *value) {
    uint64_t v = 0;
    for (int shift = 0; shift < bits && in->p < in->end; shift += 7) {
        uint8_t byte = *in->p++;
        if (shift + 7 > bits && (byte & 0x7f) >> (bits - shift)) return -1;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = unzigzag(v);
            return 0;
        }
    }
    return -1;
}

static inline int get_varint(span *in, int64_t *value) {
    if (in->p < in->end && *in->p < 0x80) {
        *value = unzigzag(*in->p++);
        return 0;
    }
    return get_number(in, 32, value);
}

/* --- CRC-32C -------------------------------------------------------------------------------- */

static void make_crc_table(module_state *state) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        state->crc_table[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = state->crc_table[0][n];
        for (int k = 1; k < 8; k++) {
            c = state->crc_table[0][c & 0xff] ^ c >> 8;
            state->crc_table[k][n] = c;
        }
    }
}

static uint32_t crc_by_table(const module_state *state, uint32_t c, const uint8_t *p, size_t n) {
    const uint32_t(*t)[256] = state->crc_table;
    c = ~c;
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low = c ^ load32_little(p);
        c = t[7][low & 0xff] ^ t[6][low >> 8 & 0xff] ^ t[5][low >> 16 & 0xff] ^ t[4][low >> 24] ^
            t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
    }
    while (n--) c = t[0][(c ^ *p++) & 0xff] ^ c >> 8;
    return ~c;
}

#ifdef HAVE_SSE42
__attribute__((target("sse4.2"))) static uint32_t crc_by_cpu(uint32_t c, const uint8_t *p,
                                                              size_t n) {
    uint64_t wide = (uint32_t)~c;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    while (n--) wide = _mm_crc32_u8((uint32_t)wide, *p++);
    return ~(uint32_t)wide;
}
#endif

static uint32_t crc_update(const module_state *state, uint32_t c, const uint8_t *p, size_t n) {
#ifdef HAVE_SSE42
    if (state->has_sse42) return crc_by_cpu(c, p, n);
#endif
    return crc_by_table(state, c, p, n);
}

static PyObject *codec_crc32c(PyObject *module, PyObject *args) {
    Py_buffer buf;
    unsigned int value = 0;
    int by_table = 0;
    if (!PyArg_ParseTuple(args, "y*|Ip:crc32c", &buf, &value, &by_table)) return NULL;
    uint32_t (*update)(const module_state *, uint32_t, const uint8_t *, size_t) =
        by_table ? crc_by_table : crc_update;
    value = update(state_of(module), value, buf.buf, (size_t)buf.len);
    PyBuffer_Release(&buf);
    return PyLong_FromUnsignedLong(value);
}

/* --- decoding ------------------------------------------------------------------------------- */

enum { KEYS, VALUES, OFFSETS, TIMESTAMPS, HEADERS, COLUMNS };

/* Records on their way into lists. Not lists yet: nobody else may see them half filled. */
typedef struct {
    PyObject **columns[COLUMNS];
    Py_ssize_t size, capacity;
    int has_headers;
} records;

/* What the header of a batch says about its records. */
typedef struct {
    int64_t base, last_delta, base_time, fixed_time, start_offset, count;
    int has_fixed_time;
} section;

/* A nullable run of bytes; null when size is -1. */
typedef struct {
    const uint8_t *data;
    int64_t size;
} blob;

/* Room for `more` records, whose number fits 32 bits: no product here can overflow. */
static int records_reserve(records *out, Py_ssize_t more) {
    if (more <= out->capacity - out->size) return 0;
    Py_ssize_t capacity = out->size + (more > out->size ? more : out->size);
    for (int c = 0; c < COLUMNS; c++) {
        size_t bytes = (size_t)capacity * sizeof(PyObject *);
        PyObject **items = PyMem_Realloc(out->columns[c], bytes);
        if (items == NULL) return PyErr_NoMemory(), -1;
        out->columns[c] = items;
    }
    out->capacity = capacity;
    return 0;
}

static void records_free(records *out) {
    for (int c = 0; c < COLUMNS; c++) {
        for (Py_ssize_t i = 0; i < out->size; i++) Py_XDECREF(out->columns[c][i]);
        PyMem_Free(out->columns[c]);
    }
}

/* A list of one column, which is left empty. */
static PyObject *records_list(records *out, int column) {
    PyObject *list = PyList_New(out->size);
    for (Py_ssize_t i = 0; list != NULL && i < out->size; i++) {
        PyList_SET_ITEM(list, i, out->columns[column][i]);
        out->columns[column][i] = NULL;
    }
    return list;
}

static int get_blob(const module_state *state, span *in, blob *out) {
    if (get_varint(in, &out->size) < 0) return corrupt(state, BAD_NUMBER);
    out->data = in->p;
    if (out->size < 0) return out->size == -1 ? 0 : corrupt(state, "a length is negative");
    if (out->size > in->end - in->p) return corrupt(state, "a field does not fit its record");
    in->p += out->size;
    return 0;
}

static PyObject *blob_object(const blob *b) {
    if (b->size < 0) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)b->data, (Py_ssize_t)b->size);
}

static PyObject *get_header(const module_state *state, span *in) {
    blob key, value;
    if (get_blob(state, in, &key) < 0) return NULL;
    if (key.size < 0) return corrupt(state, "a header has no key"), NULL;
    if (get_blob(state, in, &value) < 0) return NULL;
    PyObject *name = PyUnicode_DecodeUTF8((const char *)key.data, (Py_ssize_t)key.size, "replace");
    PyObject *content = name == NULL ? NULL : blob_object(&value);
    PyObject *pair = content == NULL ? NULL : PyTuple_Pack(2, name, content);
    Py_XDECREF(name);
    Py_XDECREF(content);
    return pair;
}

static PyObject *get_headers(const module_state *state, span *in) {
    int64_t count;
    if (get_varint(in, &count) < 0) return corrupt(state, BAD_NUMBER), NULL;
    if (count < 0 || count * 2 > in->end - in->p) {
        return corrupt(state, "a record is too short for its number of headers"), NULL;
    }
    PyObject *headers = PyTuple_New((Py_ssize_t)count);
    for (Py_ssize_t i = 0; headers != NULL && i < (Py_ssize_t)count; i++) {
        PyObject *pair = get_header(state, in);
        if (pair != NULL) PyTuple_SET_ITEM(headers, i, pair);
        else Py_CLEAR(headers);
    }
    return headers;
}

/* Append one record, for which there is room; `headers` is stolen. */
static int push_record(records *out, const blob *key, const blob *value, int64_t offset,
                       int64_t timestamp, PyObject *headers) {
    PyObject *row[COLUMNS] = {blob_object(key), blob_object(value), PyLong_FromLongLong(offset),
                              PyLong_FromLongLong(timestamp), headers};
    for (int c = 0; c < COLUMNS; c++) {
        if (row[c] == NULL) {
            for (int d = 0; d < COLUMNS; d++) Py_XDECREF(row[d]);
            return -1;
        }
    }
    for (int c = 0; c < COLUMNS; c++) out->columns[c][out->size] = row[c];
    out->size++;
    out->has_headers |= PyTuple_GET_SIZE(headers) > 0;
    return 0;
}

/* One record. `delta` is the offset delta of the record before it and becomes its own. */
static int decode_record(const module_state *state, span *in, const section *of, int64_t *delta,
                         records *out) {
    int64_t size, time_delta, own_delta, timestamp = of->fixed_time;
    blob key, value;
    if (get_varint(in, &size) < 0) return corrupt(state, BAD_NUMBER);
    if (size < 0 || size > in->end - in->p) {
        return corrupt(state, "a record does not fit its batch");
    }
    span record = {in->p, in->p + size};
    in->p += size;
    if (size > 0) record.p++; /* attributes, unused */
    if (get_number(&record, 64, &time_delta) < 0 || get_varint(&record, &own_delta) < 0) {
        return corrupt(state, BAD_NUMBER);
    }
    if (own_delta <= *delta || own_delta > of->last_delta) {
        return corrupt(state, "the offsets of a batch do not ascend within its range");
    }
    *delta = own_delta;
    if (of->base + own_delta < of->start_offset) return 0;
    if (!of->has_fixed_time && __builtin_add_overflow(of->base_time, time_delta, &timestamp)) {
        return corrupt(state, "a timestamp is out of range");
    }
    if (get_blob(state, &record, &key) < 0 || get_blob(state, &record, &value) < 0) return -1;
    PyObject *headers = get_headers(state, &record);
    if (headers == NULL) return -1;
    if (record.p != record.end) {
        Py_DECREF(headers);
        return corrupt(state, "a record is longer than its content");
    }
    return push_record(out, &key, &value, of->base + own_delta, timestamp, headers);
}

static int decode_section(const module_state *state, const uint8_t *data, Py_ssize_t size,
                          const section *of, records *out) {
    span in = {data, data + size};
    int64_t delta = -1;
    if (of->count < 0 || of->count * SMALLEST_RECORD > size) {
        return corrupt(state, "a batch is too short for its number of records");
    }
    if (records_reserve(out, (Py_ssize_t)of->count) < 0) return -1;
    for (int64_t i = 0; i < of->count; i++) {
        if (decode_record(state, &in, of, &delta, out) < 0) return -1;
    }
    return in.p == in.end ? 0 : corrupt(state, "bytes are left after the records of a batch");
}

static int decode_compressed(const module_state *state, PyObject *decompress, int compression,
                             const uint8_t *data, Py_ssize_t size, const section *of,
                             records *out) {
    Py_buffer plain;
    PyObject *result =
        PyObject_CallFunction(decompress, "iy#", compression, (const char *)data, size);
    if (result == NULL) return -1;
    int status = PyObject_GetBuffer(result, &plain, PyBUF_SIMPLE);
    if (status == 0) {
        status = decode_section(state, plain.buf, plain.len, of, out);
        PyBuffer_Release(&plain);
    }
    Py_DECREF(result);
    return status;
}

/* What decode was called with. */
typedef struct {
    long long start_offset;
    int check_crcs, keep_control;
    PyObject *decompress;
} request;

/* One batch of `size` bytes; sets next_offset unless the batch is below start_offset. */
static int decode_batch(const module_state *state, const uint8_t *p, Py_ssize_t size,
                        const request *asked, records *out, int64_t *next_offset) {
    section of = {.base = (int64_t)load64(p),
                  .last_delta = (int32_t)load32(p + 23),
                  .base_time = (int64_t)load64(p + 27),
                  .fixed_time = (int64_t)load64(p + 35),
                  .start_offset = asked->start_offset,
                  .count = (int32_t)load32(p + 57)};
    uint8_t attributes = p[ATTRIBUTES_OFFSET + 1];
    if (p[16] != MAGIC) return corrupt(state, "the magic of a batch is not 2");
    if (of.base < 0 || of.base > LARGEST_BASE_OFFSET || of.last_delta < 0) {
        return corrupt(state, "the offsets of a batch are out of range");
    }
    if (of.base + of.last_delta < asked->start_offset) return 0;
    if (asked->check_crcs) {
        size_t covered = (size_t)size - ATTRIBUTES_OFFSET;
        uint32_t crc = crc_update(state, 0, p + ATTRIBUTES_OFFSET, covered);
        if (crc != load32(p + CRC_OFFSET)) return corrupt(state, "the CRC of a batch is wrong");
    }
    of.has_fixed_time = attributes & LOG_APPEND_TIME;
    if (asked->keep_control || !(attributes & CONTROL)) {
        int compression = attributes & COMPRESSION_MASK;
        const uint8_t *data = p + HEADER_SIZE;
        size -= HEADER_SIZE;
        if (size == 0 && of.count == 0) compression = 0;
        int status = compression == 0 ? decode_section(state, data, size, &of, out)
                                      : decode_compressed(state, asked->decompress, compression,
                                                          data, size, &of, out);
        if (status < 0) return -1;
    }
    *next_offset = of.base + of.last_delta + 1;
    return 0;
}

static PyObject *decoded(records *out, long long next_offset) {
    PyObject *lists[COLUMNS];
    int complete = 1;
    for (int c = 0; c < COLUMNS; c++) {
        int absent = c == HEADERS && !out->has_headers;
        lists[c] = absent ? Py_NewRef(Py_None) : records_list(out, c);
        complete = complete && lists[c] != NULL;
    }
    if (complete) {
        return Py_BuildValue("NNNNNL", lists[KEYS], lists[VALUES], lists[OFFSETS],
                             lists[TIMESTAMPS], lists[HEADERS], next_offset);
    }
    for (int c = 0; c < COLUMNS; c++) Py_XDECREF(lists[c]);
    return NULL;
}

static PyObject *codec_decode(PyObject *module, PyObject *args) {
    const module_state *state = state_of(module);
    Py_buffer buf;
    request asked;
    records out = {0};
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*LppO:decode", &buf, &asked.start_offset, &asked.check_crcs,
                          &asked.keep_control, &asked.decompress)) {
        return NULL;
    }
    const uint8_t *p = buf.buf;
    Py_ssize_t left = buf.len;
    int64_t next_offset = asked.start_offset;
    while (left >= HEADER_SIZE) {
        int64_t size = (int64_t)(int32_t)load32(p + 8) + LENGTH_OVERHEAD;
        if (size < HEADER_SIZE) {
            corrupt(state, "a batch is shorter than its header");
            goto done;
        }
        if (size > left) break;
        if (decode_batch(state, p, (Py_ssize_t)size, &asked, &out, &next_offset) < 0) goto done;
        p += size;
        left -= (Py_ssize_t)size;
    }
    result = decoded(&out, next_offset);
done:
    records_free(&out);
    PyBuffer_Release(&buf);
    return result;
}

/* --- encoding ------------------------------------------------------------------------------- */

/* Borrowed items of the lists given; `times` is ours and NULL when one timestamp serves all. */
typedef struct {
    PyObject **keys, **values, **headers;
    int64_t *times, time;
    Py_ssize_t count;
} source;

/* The items of a list or tuple; `expected` is their number, -1 for any. */
static int get_items(PyObject *sequence, PyObject ***items, Py_ssize_t *count,
                     Py_ssize_t expected, const char *mismatch) {
    if (!PyList_Check(sequence) && !PyTuple_Check(sequence)) {
        return refuse(PyExc_TypeError, "records are passed as lists");
    }
    *items = PySequence_Fast_ITEMS(sequence);
    *count = PySequence_Fast_GET_SIZE(sequence);
    return expected < 0 || *count == expected ? 0 : refuse(PyExc_ValueError, mismatch);
}

static int to_timestamp(PyObject *number, int64_t *time) {
    int overflow;
    if (!PyLong_Check(number)) return refuse(PyExc_TypeError, "a timestamp is an int");
    *time = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (!overflow && *time >= -1 && *time <= LARGEST_TIMESTAMP) return 0;
    return refuse(PyExc_ValueError, "a timestamp is out of range");
}

static inline int check_blob(PyObject *blob) {
    if (blob == Py_None || PyBytes_Check(blob)) return 0;
    return refuse(PyExc_TypeError, "keys and values are bytes or None");
}

static int check_headers(PyObject *own) {
    PyObject **headers, **pair;
    Py_ssize_t count, size;
    if (get_items(own, &headers, &count, -1, NULL) < 0) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (get_items(headers[i], &pair, &size, 2, "a header is a pair") < 0) return -1;
        if (!PyUnicode_Check(pair[0])) {
            return refuse(PyExc_TypeError, "the key of a header is str");
        }
        /* From here on the str keeps its UTF-8, so asking again cannot fail. */
        if (PyUnicode_AsUTF8AndSize(pair[0], &size) == NULL || check_blob(pair[1]) < 0) return -1;
    }
    return 0;
}

static int source_times(source *src, PyObject *timestamps) {
    PyObject **items;
    Py_ssize_t count;
    if (PyLong_Check(timestamps)) return to_timestamp(timestamps, &src->time);
    if (get_items(timestamps, &items, &count, src->count,
                  "timestamps and values differ in number") < 0) {
        return -1;
    }
    src->times = PyMem_New(int64_t, (size_t)count + 1);
    if (src->times == NULL) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (to_timestamp(items[i], &src->times[i]) < 0) {
            PyMem_Free(src->times);
            return -1;
        }
    }
    return 0;
}

/* Check everything the passes rely on; without `timestamps` all are equal. On success the caller
 * frees `times`. */
static int source_open(source *src, PyObject *keys, PyObject *values, PyObject *timestamps,
                       PyObject *headers) {
    Py_ssize_t count;
    memset(src, 0, sizeof *src);
    if (get_items(values, &src->values, &src->count, -1, NULL) < 0 ||
        get_items(keys, &src->keys, &count, src->count, "keys and values differ in number") < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (check_blob(src->keys[i]) < 0 || check_blob(src->values[i]) < 0) return -1;
    }
    if (headers != Py_None &&
        get_items(headers, &src->headers, &count, src->count,
                  "headers and values differ in number") < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; src->headers != NULL && i < count; i++) {
        if (check_headers(src->headers[i]) < 0) return -1;
    }
    return timestamps == NULL ? 0 : source_times(src, timestamps);
}

static inline uint64_t blob_size(PyObject *blob) {
    if (blob == Py_None) return 1;
    return varint_size(PyBytes_GET_SIZE(blob)) + (uint64_t)PyBytes_GET_SIZE(blob);
}

/* Bytes of record `i` that do not depend on its place in the batch. */
static inline uint64_t fixed_size(const source *src, Py_ssize_t i) {
    uint64_t size = 1 + blob_size(src->keys[i]) + blob_size(src->values[i]);
    if (src->headers == NULL) return size + 1;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(src->headers[i]), length = 0;
    size += varint_size(count);
    for (Py_ssize_t h = 0; h < count; h++) {
        PyObject *header = PySequence_Fast_GET_ITEM(src->headers[i], h);
        (void)PyUnicode_AsUTF8AndSize(PySequence_Fast_GET_ITEM(header, 0), &length);
        size += varint_size(length) + (uint64_t)length;
        size += blob_size(PySequence_Fast_GET_ITEM(header, 1));
    }
    return size;
}

static inline int64_t time_delta(const source *src, Py_ssize_t first, Py_ssize_t i) {
    return src->times == NULL ? 0 : src->times[i] - src->times[first];
}

/* Bytes of record `i`, without its length, in a batch that starts with record `first`. */
static inline uint64_t body_size(const source *src, Py_ssize_t first, Py_ssize_t i) {
    return fixed_size(src, i) + varint_size(time_delta(src, first, i)) + varint_size(i - first);
}

static inline uint64_t record_size(const source *src, Py_ssize_t first, Py_ssize_t i) {
    uint64_t body = body_size(src, first, i);
    return body + varint_size((int64_t)body);
}

static inline uint8_t *put_bytes(uint8_t *p, const char *data, Py_ssize_t size) {
    p = put_varint(p, size);
    memcpy(p, data, (size_t)size);
    return p + size;
}

static inline uint8_t *put_blob(uint8_t *p, PyObject *blob) {
    if (blob == Py_None) return put_varint(p, -1);
    return put_bytes(p, PyBytes_AS_STRING(blob), PyBytes_GET_SIZE(blob));
}

static uint8_t *put_record(uint8_t *p, const source *src, Py_ssize_t i) {
    p = put_varint(p, (int64_t)body_size(src, 0, i));
    *p++ = 0;
    p = put_varint(p, time_delta(src, 0, i));
    p = put_varint(p, i);
    p = put_blob(p, src->keys[i]);
    p = put_blob(p, src->values[i]);
    Py_ssize_t count = src->headers == NULL ? 0 : PySequence_Fast_GET_SIZE(src->headers[i]);
    p = put_varint(p, count);
    for (Py_ssize_t h = 0; h < count; h++) {
        PyObject *header = PySequence_Fast_GET_ITEM(src->headers[i], h);
        Py_ssize_t length = 0;
        const char *name = PyUnicode_AsUTF8AndSize(PySequence_Fast_GET_ITEM(header, 0), &length);
        p = put_bytes(p, name, length);
        p = put_blob(p, PySequence_Fast_GET_ITEM(header, 1));
    }
    return p;
}

typedef struct {
    long long producer_id, base_offset;
    int attributes, base_sequence;
    short producer_epoch;
} batch_fields;

static PyObject *encode_batch(const module_state *state, const source *src,
                              const batch_fields *fields) {
    uint64_t total = HEADER_SIZE;
    int64_t first = src->time, last = src->time;
    for (Py_ssize_t i = 0; i < src->count && total <= LARGEST_BATCH; i++) {
        total += record_size(src, 0, i);
    }
    if (total > LARGEST_BATCH) {
        return raise_made(state, "batch_too_large", "(K)", (unsigned long long)total), NULL;
    }
    if (src->times != NULL) first = last = src->times[0];
    for (Py_ssize_t i = 1; src->times != NULL && i < src->count; i++) {
        if (src->times[i] > last) last = src->times[i];
    }
    PyObject *batch = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (batch == NULL) return NULL;
    uint8_t *head = (uint8_t *)PyBytes_AS_STRING(batch), *p = head + HEADER_SIZE;
    for (Py_ssize_t i = 0; i < src->count; i++) p = put_record(p, src, i);
    store64(head, (uint64_t)fields->base_offset);
    store32(head + 8, (uint32_t)(total - LENGTH_OVERHEAD));
    store32(head + 12, UINT32_MAX); /* leader epoch -1 */
    head[16] = MAGIC;
    store16(head + 21, (uint32_t)fields->attributes);
    store32(head + 23, (uint32_t)(src->count - 1));
    store64(head + 27, (uint64_t)first);
    store64(head + 35, (uint64_t)last);
    store64(head + 43, (uint64_t)fields->producer_id);
    store16(head + 51, (uint32_t)(int32_t)fields->producer_epoch);
    store32(head + 53, (uint32_t)fields->base_sequence);
    store32(head + 57, (uint32_t)src->count);
    store32(head + CRC_OFFSET, crc_update(state, 0, head + ATTRIBUTES_OFFSET,
                                          (size_t)total - ATTRIBUTES_OFFSET));
    return batch;
}

static PyObject *codec_encode(PyObject *module, PyObject *args) {
    PyObject *keys, *values, *timestamps, *headers, *batch = NULL;
    batch_fields fields;
    source src;
    if (!PyArg_ParseTuple(args, "OOOOiLhiL:encode", &keys, &values, &timestamps, &headers,
                          &fields.attributes, &fields.producer_id, &fields.producer_epoch,
                          &fields.base_sequence, &fields.base_offset)) {
        return NULL;
    }
    if (source_open(&src, keys, values, timestamps, headers) < 0) return NULL;
    if (src.count == 0) {
        PyErr_SetString(PyExc_ValueError, "a batch has at least one record");
    } else {
        batch = encode_batch(state_of(module), &src, &fields);
    }
    PyMem_Free(src.times);
    return batch;
}

static PyObject *codec_estimate_size(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *keys, *values, *headers;
    source src;
    if (!PyArg_ParseTuple(args, "OOO:estimate_size", &keys, &values, &headers) ||
        source_open(&src, keys, values, NULL, headers) < 0) {
        return NULL;
    }
    uint64_t total = HEADER_SIZE;
    for (Py_ssize_t i = 0; i < src.count; i++) total += record_size(&src, 0, i);
    return PyLong_FromUnsignedLongLong(total);
}

static int append_index(PyObject *list, Py_ssize_t index) {
    PyObject *number = PyLong_FromSsize_t(index);
    if (number == NULL) return -1;
    int status = PyList_Append(list, number);
    Py_DECREF(number);
    return status;
}

static int cut_chunks(const module_state *state, const source *src, uint64_t limit,
                      PyObject *ends) {
    Py_ssize_t first = 0;
    uint64_t total = HEADER_SIZE;
    for (Py_ssize_t i = 0; i < src->count; i++) {
        uint64_t size = record_size(src, first, i);
        if (total + size > limit && i > first) {
            if (append_index(ends, i) < 0) return -1;
            first = i;
            total = HEADER_SIZE;
            size = record_size(src, first, i);
        }
        if (total + size > limit) {
            return raise_made(state, "record_too_large", "(KK)", (unsigned long long)(total + size),
                              (unsigned long long)limit);
        }
        total += size;
    }
    return first < src->count ? append_index(ends, src->count) : 0;
}

static PyObject *codec_chunk_ends(PyObject *module, PyObject *args) {
    PyObject *keys, *values, *timestamps, *headers;
    long long max_bytes;
    source src;
    if (!PyArg_ParseTuple(args, "OOOOL:chunk_ends", &keys, &values, &timestamps, &headers,
                          &max_bytes)) {
        return NULL;
    }
    uint64_t limit = max_bytes < 0 ? 0 : (uint64_t)max_bytes;
    if (limit > LARGEST_BATCH) limit = LARGEST_BATCH;
    PyObject *ends = PyList_New(0); /* before the items are borrowed: it may collect garbage */
    if (ends == NULL) return NULL;
    if (source_open(&src, keys, values, timestamps, headers) == 0) {
        int status = cut_chunks(state_of(module), &src, limit, ends);
        PyMem_Free(src.times);
        if (status == 0) return ends;
    }
    Py_DECREF(ends);
    return NULL;
}

/* --- partitioning --------------------------------------------------------------------------- */

static uint32_t murmur2(const uint8_t *p, size_t size) {
    const uint32_t m = 0x5bd1e995u;
    uint32_t h = 0x9747b28cu ^ (uint32_t)size;
    for (; size >= 4; p += 4, size -= 4) {
        uint32_t k = load32_little(p) * m;
        k ^= k >> 24;
        h = h * m ^ k * m;
    }
    if (size > 0) {
        for (size_t i = 0; i < size; i++) h ^= (uint32_t)p[i] << 8 * i;
        h *= m;
    }
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

static uint32_t hash_of(PyObject *key) {
    return murmur2((const uint8_t *)PyBytes_AS_STRING(key), (size_t)PyBytes_GET_SIZE(key));
}

static PyObject *codec_murmur2(PyObject *Py_UNUSED(module), PyObject *key) {
    if (!PyBytes_Check(key)) return refuse(PyExc_TypeError, "a key is bytes"), NULL;
    return PyLong_FromLong((int32_t)hash_of(key));
}

static PyObject *codec_partition_keys(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *keys, **items;
    int partitions;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "Oi:partition_keys", &keys, &partitions)) return NULL;
    if (partitions <= 0) {
        return refuse(PyExc_ValueError, "the number of partitions is positive"), NULL;
    }
    if (get_items(keys, &items, &count, -1, NULL) < 0) return NULL;
    PyObject *result = PyList_New(count); /* it may collect garbage: look at the keys again */
    if (result == NULL) return NULL;
    int status = get_items(keys, &items, &count, count, "the keys changed");
    for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
        long partition = -1;
        status = check_blob(items[i]);
        if (status == 0 && items[i] != Py_None) {
            partition = (long)((hash_of(items[i]) & 0x7fffffffu) % (uint32_t)partitions);
        }
        PyObject *number = status == 0 ? PyLong_FromLong(partition) : NULL;
        if (number != NULL) PyList_SET_ITEM(result, i, number);
        else status = -1;
    }
    if (status < 0) Py_CLEAR(result);
    return result;
}

/* --- module --------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"decode", codec_decode, METH_VARARGS, "Records of the batches in a buffer."},
    {"encode", codec_encode, METH_VARARGS, "One uncompressed batch."},
    {"estimate_size", codec_estimate_size, METH_VARARGS, "Bytes of one uncompressed batch."},
    {"chunk_ends", codec_chunk_ends, METH_VARARGS, "Where to cut records into batches."},
    {"partition_keys", codec_partition_keys, METH_VARARGS, "Partition of each key."},
    {"murmur2", codec_murmur2, METH_O, "Kafka's murmur2, signed."},
    {"crc32c", codec_crc32c, METH_VARARGS, "CRC-32C, continued from a value; by table if asked."},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module) {
    module_state *state = state_of(module);
    const char *pure = getenv("ONCEWARD_PURE_PYTHON");
    if (pure != NULL && strcmp(pure, "1") == 0) {
        return refuse(PyExc_ImportError, "ONCEWARD_PURE_PYTHON asks for the pure codec");
    }
    state->layout = PyImport_ImportModule("onceward.broker.records.layout");
    if (state->layout == NULL) return -1;
    make_crc_table(state);
#ifdef HAVE_SSE42
    __builtin_cpu_init();
    state->has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
#endif
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    module_state *state = state_of(module);
    if (state != NULL) Py_VISIT(state->layout);
    return 0;
}

static int module_clear(PyObject *module) {
    module_state *state = state_of(module);
    if (state != NULL) Py_CLEAR(state->layout);
    return 0;
}

static void module_free(void *module) { (void)module_clear((PyObject *)module); }

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_codec",
    .m_doc = "Compiled form of onceward.broker.records.pure.",
    .m_size = sizeof(module_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__codec(void) { return PyModuleDef_Init(&definition); }
