/* What runs once or more per record: handing out, sending, tables. The same as pure.py, compiled;
 * the tests hold both equal.
 *
 * The bases of the engine's types keep here, as plain fields, what these steps touch. Python code
 * may put anything into a field, so every field is looked at before it is used as what it should
 * be, and whatever is used across a call into Python is owned meanwhile. A step that is not the
 * common case is left to the methods of the Python classes.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

typedef struct {
    PyObject *pure;     /* the module with the constants */
    PyObject *current;  /* CURRENT */
    PyObject *absent;   /* ABSENT */
    PyObject *snapshot; /* Snapshot */
    PyTypeObject *feed_type, *slot_type, *values_type, *next_type, *lists_type, *topics_type,
        *overlay_type, *table_type, *topic_type, *effects_type, *sink_type;
    PyObject *s_ask_for_commit, *s_encode, *s_find, *s_headers, *s_is_full, *s_key,
        *s_key_serializer, *s_load, *s_outside, *s_park, *s_partition, *s_put, *s_remove,
        *s_send_encoded, *s_send_given, *s_task, *s_throw, *s_timestamp, *s_timestamps, *s_value,
        *s_value_serializer, *s_writable;
} module_state;

static struct PyModuleDef definition;

static module_state *state_of_type(PyTypeObject *type) {
    PyObject *module = PyType_GetModuleByDef(type, &definition);
    return module == NULL ? NULL : PyModule_GetState(module);
}

/* --- fields --------------------------------------------------------------------------------- */

/* The owned fields of every type come first and follow each other; `last` is the last of them. */
#define OWNED(type, last) ((offsetof(type, last) - sizeof(PyObject)) / sizeof(PyObject *) + 1)

static inline PyObject **owned(PyObject *self) {
    return (PyObject **)((char *)self + sizeof(PyObject));
}

static int visit_owned(PyObject *self, size_t count, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    for (size_t i = 0; i < count; i++) Py_VISIT(owned(self)[i]);
    return 0;
}

static int clear_owned(PyObject *self, size_t count) {
    for (size_t i = 0; i < count; i++) Py_CLEAR(owned(self)[i]);
    return 0;
}

static void free_owned(PyObject *self, size_t count) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear_owned(self, count);
    type->tp_free(self);
    Py_DECREF(type);
}

#define FIELDS_OF(name, type, last)                                                     \
    static int name##_traverse(PyObject *self, visitproc visit, void *arg) {            \
        return visit_owned(self, OWNED(type, last), visit, arg);                        \
    }                                                                                   \
    static int name##_clear(PyObject *self) { return clear_owned(self, OWNED(type, last)); } \
    static void name##_dealloc(PyObject *self) { free_owned(self, OWNED(type, last)); }

#define MEMORY_SLOTS(name)                                                       \
    {Py_tp_traverse, (void *)name##_traverse}, {Py_tp_clear, (void *)name##_clear}, \
        {Py_tp_dealloc, (void *)name##_dealloc}

#define MEMBER(type, field) {#field, T_OBJECT_EX, offsetof(type, field), 0, NULL}

/* PyObject_TypeCheck; quick for the direct subclass that the engine makes of every base. */
static inline int is_a(PyObject *object, PyTypeObject *type) {
    PyTypeObject *exact = Py_TYPE(object);
    return exact == type || exact->tp_base == type || PyType_IsSubtype(exact, type);
}

/* The field, which must be set and of a type; borrowed, NULL with an exception otherwise. */
static inline PyObject *wanted(PyObject *field, PyTypeObject *type, const char *what) {
    if (field != NULL && is_a(field, type)) return field;
    PyErr_Format(PyExc_TypeError, "%s must be a %s", what, type->tp_name);
    return NULL;
}

static inline PyObject *dict_get(PyObject *dict, PyObject *key, const char *what) {
    if (wanted(dict, &PyDict_Type, what) == NULL) return NULL;
    Py_INCREF(dict); /* comparing keys may run code */
    PyObject *value = Py_XNewRef(PyDict_GetItemWithError(dict, key));
    Py_DECREF(dict);
    return value;
}

/* UTF-8 of plain text where that is the codec, otherwise what the codec says. */
static PyObject *encode_key(PyObject *encode, char is_text, PyObject *key) {
    if (is_text && PyUnicode_CheckExact(key)) return PyUnicode_AsUTF8String(key);
    if (encode == NULL) {
        PyErr_SetString(PyExc_AttributeError, "encode_key");
        return NULL;
    }
    Py_INCREF(encode);
    PyObject *raw = PyObject_CallOneArg(encode, key);
    Py_DECREF(encode);
    return raw;
}

/* --- feed and slot -------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *block;
    PyObject *values;
    Py_ssize_t index;
    Py_ssize_t limit;
} feed_object;

FIELDS_OF(feed, feed_object, values)

static PyMemberDef feed_members[] = {
    MEMBER(feed_object, block),
    MEMBER(feed_object, values),
    {"index", T_PYSSIZET, offsetof(feed_object, index), 0, NULL},
    {"limit", T_PYSSIZET, offsetof(feed_object, limit), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot feed_slots[] = {
    MEMORY_SLOTS(feed),
    {Py_tp_members, feed_members},
    {0, NULL},
};

typedef struct {
    PyObject_HEAD
    PyObject *feed;
    PyObject *block;
    PyObject *outputs;
    PyObject *tables;
    PyObject *done;
    PyObject *effects;
    PyObject *agent;
    PyObject *known_block; /* the block that these timestamps are of */
    PyObject *timestamps;
    Py_ssize_t index;
} slot_object;

FIELDS_OF(slot, slot_object, timestamps)

static PyMemberDef slot_members[] = {
    MEMBER(slot_object, feed),
    MEMBER(slot_object, block),
    MEMBER(slot_object, outputs),
    MEMBER(slot_object, tables),
    MEMBER(slot_object, done),
    MEMBER(slot_object, effects),
    MEMBER(slot_object, agent),
    {"index", T_PYSSIZET, offsetof(slot_object, index), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slot_slots[] = {
    MEMORY_SLOTS(slot),
    {Py_tp_members, slot_members},
    {0, NULL},
};

/* The slot of the running code, owned; NULL without an exception when it is none. */
static slot_object *current_slot(const module_state *state) {
    PyObject *emitter = NULL;
    if (PyContextVar_Get(state->current, NULL, &emitter) < 0 || emitter == NULL) return NULL;
    if (is_a(emitter, state->slot_type)) return (slot_object *)emitter;
    Py_DECREF(emitter);
    return NULL;
}

/* The timestamp of the record in hand, owned. */
static PyObject *timestamp_in_hand(const module_state *state, slot_object *slot) {
    if (slot->known_block != slot->block || slot->timestamps == NULL) {
        PyObject *timestamps = PyObject_GetAttr(slot->block, state->s_timestamps);
        if (timestamps == NULL) return NULL;
        Py_XSETREF(slot->timestamps, timestamps);
        Py_XSETREF(slot->known_block, Py_NewRef(slot->block));
    }
    PyObject *timestamps = wanted(slot->timestamps, &PyList_Type, "timestamps");
    if (timestamps == NULL) return NULL;
    if (slot->index < 0 || slot->index >= PyList_GET_SIZE(timestamps)) {
        PyErr_SetString(PyExc_IndexError, "list index out of range");
        return NULL;
    }
    return Py_NewRef(PyList_GET_ITEM(timestamps, slot->index));
}

/* --- values: an asynchronous iterator ------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *slot;
    PyObject *feed;
    PyObject *wake;
    PyObject *spare; /* a next_object that is used again when nobody else has it */
    char is_running; /* somebody waits in park() */
    char is_finished;
} values_object;

FIELDS_OF(values, values_object, spare)

/* What __anext__ gives to await: one record. As an asynchronous generator's asend(). */
typedef struct {
    PyObject_HEAD
    PyObject *values; /* NULL: awaited already */
    PyObject *parked; /* the coroutine of park(), NULL before and after it */
} next_object;

FIELDS_OF(next, next_object, parked)

/* The next record becomes the one in hand; its value, owned. */
static PyObject *take_record(slot_object *slot, feed_object *feed) {
    Py_ssize_t index = feed->index;
    feed->index = index + 1;
    slot->index = index;
    Py_XINCREF(feed->block);
    Py_XSETREF(slot->block, feed->block);
    /* now: what was given up for it may have run code */
    PyObject *values = wanted(feed->values, &PyList_Type, "values");
    if (values == NULL) return NULL;
    if (index < 0 || index >= PyList_GET_SIZE(values)) {
        PyErr_SetString(PyExc_IndexError, "list index out of range");
        return NULL;
    }
    return Py_NewRef(PyList_GET_ITEM(values, index));
}

/* This await is over; so is the iteration when it did not end with a value. */
static PySendResult next_ends(next_object *self, PySendResult outcome) {
    values_object *values = (values_object *)self->values;
    self->values = NULL;
    values->is_running = 0;
    if (outcome == PYGEN_ERROR) values->is_finished = 1;
    Py_CLEAR(self->parked);
    Py_DECREF(values);
    return outcome;
}

/* Hand out a record, or park until there is one and pass on what park() waits for. */
static PySendResult next_goes_on(const module_state *state, next_object *self, PyObject **result) {
    values_object *values = (values_object *)self->values;
    feed_object *feed = (feed_object *)values->feed;
    while (feed->index >= feed->limit) {
        values->is_running = 1;
        /* whoever awaits this is to be its only owner: dropped with them, it stops waiting */
        if (values->spare == (PyObject *)self) Py_CLEAR(values->spare);
        self->parked = PyObject_CallMethodNoArgs(values->slot, state->s_park);
        if (self->parked == NULL) return next_ends(self, PYGEN_ERROR);
        PyObject *rang = NULL;
        PySendResult outcome = PyIter_Send(self->parked, Py_None, &rang);
        if (outcome == PYGEN_NEXT) {
            *result = rang;
            return PYGEN_NEXT;
        }
        if (outcome == PYGEN_ERROR) return next_ends(self, PYGEN_ERROR);
        Py_CLEAR(self->parked);
        int is_wake = PyObject_IsTrue(rang);
        Py_DECREF(rang);
        if (is_wake < 0) return next_ends(self, PYGEN_ERROR);
        if (is_wake) {
            *result = Py_XNewRef(values->wake);
            return next_ends(self, PYGEN_RETURN);
        }
    }
    *result = take_record((slot_object *)values->slot, feed);
    return next_ends(self, *result == NULL ? PYGEN_ERROR : PYGEN_RETURN);
}

/* park() came back with `rang`, which is taken over. */
static PySendResult next_woken(const module_state *state, next_object *self, PyObject *rang,
                               PyObject **result) {
    Py_CLEAR(self->parked);
    int is_wake = PyObject_IsTrue(rang);
    Py_DECREF(rang);
    if (is_wake < 0) return next_ends(self, PYGEN_ERROR);
    if (!is_wake) return next_goes_on(state, self, result);
    *result = Py_XNewRef(((values_object *)self->values)->wake);
    return next_ends(self, PYGEN_RETURN);
}

/* Before the first step: whether this may be awaited at all; 0, or -1 with an exception. */
static int next_may_start(next_object *self) {
    values_object *values = (values_object *)self->values;
    if (!values->is_running && !values->is_finished) return 0;
    if (values->is_finished) {
        PyErr_SetNone(PyExc_StopAsyncIteration);
    } else {
        PyErr_SetString(PyExc_RuntimeError, "anext(): asynchronous generator is already running");
    }
    self->values = NULL;
    Py_DECREF(values);
    return -1;
}

static PyObject *awaited_already(void) {
    PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited __anext__()/asend()");
    return NULL;
}

static PySendResult next_send(PyObject *self_, PyObject *arg, PyObject **result) {
    next_object *self = (next_object *)self_;
    *result = NULL;
    if (self->values == NULL) {
        (void)awaited_already();
        return PYGEN_ERROR;
    }
    const module_state *state = PyType_GetModuleState(Py_TYPE(self));
    if (self->parked == NULL) {
        if (next_may_start(self) < 0) return PYGEN_ERROR;
        return next_goes_on(state, self, result);
    }
    PyObject *passed = NULL;
    PySendResult outcome = PyIter_Send(self->parked, arg, &passed);
    if (outcome == PYGEN_RETURN) return next_woken(state, self, passed, result);
    if (outcome == PYGEN_ERROR) return next_ends(self, PYGEN_ERROR);
    *result = passed;
    return PYGEN_NEXT;
}

/* The iterator's way to say the same: what is returned ends it as the value of StopIteration. */
static PyObject *as_iterator(PySendResult outcome, PyObject *result) {
    if (outcome != PYGEN_RETURN) return result;
    PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, result);
    Py_DECREF(result);
    if (stop != NULL) PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
    return NULL;
}

static PyObject *next_iternext(PyObject *self) {
    PyObject *result = NULL;
    PySendResult outcome = next_send(self, Py_None, &result);
    return as_iterator(outcome, result);
}

static PyObject *next_send_method(PyObject *self, PyObject *arg) {
    PyObject *result = NULL;
    PySendResult outcome = next_send(self, arg, &result);
    return as_iterator(outcome, result);
}

/* Raise what throw() was given: an exception, or a class and optionally a value. */
static void raise_given(PyObject *args) {
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    if (!PyArg_UnpackTuple(args, "throw", 1, 3, &type, &value, &trace)) return;
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else if (PyExceptionClass_Check(type)) {
        PyErr_SetObject(type, value == Py_None ? NULL : value);
    } else {
        PyErr_SetString(PyExc_TypeError, "exceptions must be classes or instances");
    }
}

static PyObject *next_throw(PyObject *self_, PyObject *args) {
    next_object *self = (next_object *)self_;
    if (self->values == NULL) return awaited_already();
    const module_state *state = PyType_GetModuleState(Py_TYPE(self));
    if (self->parked == NULL) {
        if (next_may_start(self) < 0) return NULL;
        raise_given(args);
        next_ends(self, PYGEN_ERROR);
        return NULL;
    }
    PyObject *throw = PyObject_GetAttr(self->parked, state->s_throw);
    PyObject *passed = throw == NULL ? NULL : PyObject_CallObject(throw, args);
    Py_XDECREF(throw);
    if (passed != NULL) return passed;
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) {
        next_ends(self, PYGEN_ERROR);
        return NULL;
    }
    PyObject *type, *stop, *trace;
    PyErr_Fetch(&type, &stop, &trace);
    PyErr_NormalizeException(&type, &stop, &trace);
    PyObject *rang = PyObject_GetAttrString(stop, "value");
    Py_XDECREF(type);
    Py_XDECREF(stop);
    Py_XDECREF(trace);
    if (rang == NULL) {
        next_ends(self, PYGEN_ERROR);
        return NULL;
    }
    PyObject *result = NULL;
    PySendResult outcome = next_woken(state, self, rang, &result);
    return as_iterator(outcome, result);
}

static PyObject *next_close(PyObject *self_, PyObject *Py_UNUSED(ignored)) {
    next_object *self = (next_object *)self_;
    if (self->values == NULL) Py_RETURN_NONE;
    PyObject *parked = self->parked;
    self->parked = NULL;
    if (parked == NULL) {
        Py_CLEAR(self->values);
        Py_RETURN_NONE;
    }
    next_ends(self, PYGEN_ERROR);
    PyObject *closed = PyObject_CallMethod(parked, "close", NULL);
    Py_DECREF(parked);
    return closed;
}

/* Dropped while it waited, with the coroutine around it: nobody reads on. */
static void next_finalize(PyObject *self_) {
    next_object *self = (next_object *)self_;
    if (self->values == NULL || self->parked == NULL) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    next_ends(self, PYGEN_ERROR);
    PyErr_Restore(type, value, trace);
}

static void next_free(PyObject *self) {
    if (PyObject_CallFinalizerFromDealloc(self) < 0) return;
    next_dealloc(self);
}

static PyMethodDef next_methods[] = {
    {"send", next_send_method, METH_O, "Go on."},
    {"throw", next_throw, METH_VARARGS, "Raise in what is waited for."},
    {"close", next_close, METH_NOARGS, "Stop waiting."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot next_slots[] = {
    {Py_tp_traverse, (void *)next_traverse},
    {Py_tp_clear, (void *)next_clear},
    {Py_tp_dealloc, (void *)next_free},
    {Py_tp_finalize, (void *)next_finalize},
    {Py_tp_iter, (void *)PyObject_SelfIter},
    {Py_tp_iternext, (void *)next_iternext},
    {Py_tp_methods, next_methods},
    {Py_am_await, (void *)PyObject_SelfIter},
    {Py_am_send, (void *)next_send},
    {0, NULL},
};

static PyObject *values_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *slot, *wake;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "values() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OO:values", &slot, &wake)) return NULL;
    const module_state *state = PyType_GetModuleState(type);
    if (wanted(slot, state->slot_type, "slot") == NULL) return NULL;
    PyObject *feed = ((slot_object *)slot)->feed;
    if (wanted(feed, state->feed_type, "feed") == NULL) return NULL;
    values_object *self = (values_object *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->slot = Py_NewRef(slot);
    self->feed = Py_NewRef(feed);
    self->wake = Py_NewRef(wake);
    return (PyObject *)self;
}

static PyObject *values_anext(PyObject *self_) {
    values_object *self = (values_object *)self_;
    next_object *next = (next_object *)self->spare;
    if (next == NULL || Py_REFCNT(next) != 1) {
        const module_state *state = PyType_GetModuleState(Py_TYPE(self));
        next = (next_object *)state->next_type->tp_alloc(state->next_type, 0);
        if (next == NULL) return NULL;
        Py_XSETREF(self->spare, (PyObject *)next);
    }
    if (next->values == NULL) next->values = Py_NewRef(self_);
    return Py_NewRef((PyObject *)next);
}

static PyType_Slot values_slots[] = {
    MEMORY_SLOTS(values),
    {Py_tp_new, (void *)values_new},
    {Py_am_aiter, (void *)PyObject_SelfIter},
    {Py_am_anext, (void *)values_anext},
    {0, NULL},
};

/* --- outputs -------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *keys;
    PyObject *values;
    PyObject *timestamps;
} lists_object;

FIELDS_OF(lists, lists_object, timestamps)

static PyMemberDef lists_members[] = {
    MEMBER(lists_object, keys),
    MEMBER(lists_object, values),
    MEMBER(lists_object, timestamps),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot lists_slots[] = {
    MEMORY_SLOTS(lists),
    {Py_tp_members, lists_members},
    {0, NULL},
};

typedef struct {
    PyObject_HEAD
    PyObject *topics;
} topics_object;

FIELDS_OF(topics, topics_object, topics)

static PyMemberDef topics_members[] = {
    MEMBER(topics_object, topics),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot topics_slots[] = {
    MEMORY_SLOTS(topics),
    {Py_tp_members, topics_members},
    {0, NULL},
};

/* --- sending -------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *name;
    PyObject *encode_key;
    PyObject *encode_value;
    const module_state *state; /* lives as long as the type */
    char encodes_text;
    char is_plain;
} topic_object;

FIELDS_OF(topic, topic_object, encode_value)

static PyMemberDef topic_members[] = {
    MEMBER(topic_object, name),
    MEMBER(topic_object, encode_key),
    MEMBER(topic_object, encode_value),
    {"encodes_text", T_BOOL, offsetof(topic_object, encodes_text), 0, NULL},
    {"is_plain", T_BOOL, offsetof(topic_object, is_plain), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *topic_new(PyTypeObject *type, PyObject *Py_UNUSED(args),
                           PyObject *Py_UNUSED(kwargs)) {
    const module_state *state = state_of_type(type);
    if (state == NULL) return NULL;
    topic_object *self = (topic_object *)type->tp_alloc(type, 0);
    if (self != NULL) self->state = state;
    return (PyObject *)self;
}

/* Append to the lists of the slot's output; 1 done, 0 this is not the common case, -1 error. */
static int append_output(topic_object *self, slot_object *slot, PyObject *key, PyObject *value) {
    const module_state *state = self->state;
    if (wanted(slot->outputs, state->topics_type, "outputs") == NULL) return -1;
    PyObject *topics = ((topics_object *)slot->outputs)->topics;
    if (self->name == NULL) {
        PyErr_SetString(PyExc_AttributeError, "name");
        return -1;
    }
    PyObject *found = dict_get(topics, self->name, "topics");
    if (found == NULL) return PyErr_Occurred() ? -1 : 0;
    if (slot->block == NULL || slot->block == Py_None) {
        Py_DECREF(found);
        return 0;
    }
    int outcome = -1;
    lists_object *lists = (lists_object *)found;
    PyObject *timestamp = NULL;
    if (wanted(found, state->lists_type, "output") == NULL ||
        wanted(lists->keys, &PyList_Type, "keys") == NULL ||
        wanted(lists->values, &PyList_Type, "values") == NULL ||
        wanted(lists->timestamps, &PyList_Type, "timestamps") == NULL) {
        goto end;
    }
    timestamp = timestamp_in_hand(state, slot);
    if (timestamp == NULL) goto end;
    if (PyList_Append(lists->keys, key) < 0 || PyList_Append(lists->values, value) < 0 ||
        PyList_Append(lists->timestamps, timestamp) < 0) {
        goto end;
    }
    outcome = 1;
end:
    Py_XDECREF(timestamp);
    Py_DECREF(found);
    return outcome;
}

/* The key and value, encoded, go to the outputs of the slot. */
static PyObject *send_pair(topic_object *self, slot_object *slot, PyObject *key, PyObject *value) {
    PyObject *raw_value = NULL, *sent = NULL;
    PyObject *raw_key = key == Py_None ? Py_NewRef(key)
                                       : encode_key(self->encode_key, self->encodes_text, key);
    if (raw_key == NULL) return NULL;
    if (value == Py_None) {
        raw_value = Py_NewRef(value);
    } else if (self->encode_value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "encode_value");
    } else {
        PyObject *encode = Py_NewRef(self->encode_value);
        raw_value = PyObject_CallOneArg(encode, value);
        Py_DECREF(encode);
    }
    if (raw_value == NULL) goto end;
    int appended = append_output(self, slot, raw_key, raw_value);
    if (appended > 0) {
        sent = Py_XNewRef(slot->done);
        if (sent == NULL) PyErr_SetString(PyExc_AttributeError, "done");
    } else if (appended == 0) {
        sent = PyObject_CallMethodObjArgs((PyObject *)self, self->state->s_send_encoded, raw_key,
                                          raw_value, NULL);
    }
end:
    Py_DECREF(raw_key);
    Py_XDECREF(raw_value);
    return sent;
}

/* Everything that send() can be given, which is for the method in Python. */
static PyObject *send_given(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
    size_t count = (size_t)nargs + (kwnames == NULL ? 0 : (size_t)PyTuple_GET_SIZE(kwnames));
    PyObject **all = PyMem_New(PyObject *, count + 1);
    if (all == NULL) return PyErr_NoMemory();
    const module_state *state = ((topic_object *)self)->state;
    all[0] = self;
    if (count > 0) memcpy(all + 1, args, count * sizeof(PyObject *));
    PyObject *sent =
        PyObject_VectorcallMethod(state->s_send_given, all, (size_t)nargs + 1, kwnames);
    PyMem_Free(all);
    return sent;
}

static int is_option(const module_state *state, PyObject *name) {
    return name == state->s_partition || name == state->s_timestamp || name == state->s_headers ||
           name == state->s_key_serializer || name == state->s_value_serializer;
}

static PyObject *topic_send(PyObject *self_, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
    topic_object *self = (topic_object *)self_;
    PyObject *key = Py_None, *value = Py_None;
    Py_ssize_t count = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    if (nargs > 0) return send_given(self_, args, nargs, kwnames);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i); /* names in code are interned */
        if (name == self->state->s_key) {
            key = args[i];
        } else if (name == self->state->s_value) {
            value = args[i];
        } else if (args[i] != Py_None || !is_option(self->state, name)) {
            return send_given(self_, args, nargs, kwnames);
        }
    }
    slot_object *slot = self->is_plain ? current_slot(self->state) : NULL;
    if (slot == NULL) {
        return PyErr_Occurred() ? NULL : send_given(self_, args, nargs, kwnames);
    }
    PyObject *sent = send_pair(self, slot, key, value);
    Py_DECREF(slot);
    return sent;
}

PyDoc_STRVAR(send_doc,
             "send($self, /, *, key=None, value=None, partition=None, timestamp=None,\n"
             "     headers=None, key_serializer=None, value_serializer=None)\n"
             "--\n\n"
             "Send one record; await the result (it is cheap).\n\n"
             "In an agent the record joins the outputs of the record being handled. Raises\n"
             "TypeError when it cannot be encoded.");

static PyMethodDef topic_methods[] = {
    {"send", (PyCFunction)(void (*)(void))topic_send, METH_FASTCALL | METH_KEYWORDS, send_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot topic_slots[] = {
    MEMORY_SLOTS(topic),
    {Py_tp_new, (void *)topic_new},
    {Py_tp_members, topic_members},
    {Py_tp_methods, topic_methods},
    {0, NULL},
};

/* --- sinks ---------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *values;
    PyObject *origins;
    PyObject *last_block;
    PyObject *last_agent;
    Py_ssize_t next_index;
    Py_ssize_t check_at;
} effects_object;

FIELDS_OF(effects, effects_object, last_agent)

static PyMemberDef effects_members[] = {
    MEMBER(effects_object, values),
    MEMBER(effects_object, origins),
    MEMBER(effects_object, last_block),
    MEMBER(effects_object, last_agent),
    {"next_index", T_PYSSIZET, offsetof(effects_object, next_index), 0, NULL},
    {"check_at", T_PYSSIZET, offsetof(effects_object, check_at), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* What is added now does not go on where the last value came from. */
static int add_origin(effects_object *self, PyObject *block, Py_ssize_t index, PyObject *agent) {
    if (wanted(self->origins, &PyList_Type, "origins") == NULL) return -1;
    PyObject *origin = Py_BuildValue("nOnO", PyList_GET_SIZE(self->values), block, index, agent);
    if (origin == NULL) return -1;
    int appended = PyList_Append(self->origins, origin);
    Py_DECREF(origin);
    if (appended < 0) return -1;
    self->next_index = index; /* if the value is not added after all */
    Py_XSETREF(self->last_block, Py_NewRef(block));
    Py_XSETREF(self->last_agent, Py_NewRef(agent));
    return 0;
}

/* All that is given is owned by the caller. */
static int add_effect(effects_object *self, PyObject *value, PyObject *block, Py_ssize_t index,
                      PyObject *agent) {
    if (wanted(self->values, &PyList_Type, "values") == NULL) return -1;
    if (block != self->last_block || index != self->next_index || agent != self->last_agent) {
        if (add_origin(self, block, index, agent) < 0) return -1;
        /* what was given up for it may have run code */
        if (wanted(self->values, &PyList_Type, "values") == NULL) return -1;
    }
    if (PyList_Append(self->values, value) < 0) return -1;
    self->next_index = index + 1;
    return 0;
}

static PyObject *effects_add(PyObject *self, PyObject *args) {
    PyObject *value, *block, *agent;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "OOnO:add", &value, &block, &index, &agent)) return NULL;
    if (add_effect((effects_object *)self, value, block, index, agent) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef effects_methods[] = {
    {"add", effects_add, METH_VARARGS, "A value is caused by a record of a block."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot effects_slots[] = {
    MEMORY_SLOTS(effects),
    {Py_tp_members, effects_members},
    {Py_tp_methods, effects_methods},
    {0, NULL},
};

/* Raise what the sink says about being written to here. */
static PyObject *raise_outside(const module_state *state, PyObject *self, PyObject *in_agent) {
    PyObject *error = PyObject_CallMethodOneArg(self, state->s_outside, in_agent);
    if (error == NULL) return NULL;
    if (PyExceptionInstance_Check(error)) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    } else {
        PyErr_SetString(PyExc_TypeError, "_outside() must return an exception");
    }
    Py_DECREF(error);
    return NULL;
}

/* Ask for a commit when the sink has enough; 0, or -1 with an exception. */
static int check_full(const module_state *state, slot_object *slot, effects_object *effects) {
    if (wanted(effects->values, &PyList_Type, "values") == NULL) return -1;
    if (PyList_GET_SIZE(effects->values) < effects->check_at) return 0;
    PyObject *answer = PyObject_CallMethodNoArgs((PyObject *)effects, state->s_is_full);
    int is_full = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (is_full <= 0) return is_full;
    PyObject *task = PyObject_GetAttr((PyObject *)slot, state->s_task);
    PyObject *asked =
        task == NULL ? NULL : PyObject_CallMethodNoArgs(task, state->s_ask_for_commit);
    Py_XDECREF(task);
    Py_XDECREF(asked);
    return asked == NULL ? -1 : 0;
}

/* Encode the value and keep it with the record in hand. */
static PyObject *write_effect(const module_state *state, PyObject *self, slot_object *slot,
                              effects_object *effects, PyObject *value, PyObject *key) {
    PyObject *args[] = {self, value, key, (PyObject *)slot};
    PyObject *encoded = PyObject_VectorcallMethod(state->s_encode, args, 4, NULL);
    if (encoded == NULL) return NULL;
    PyObject *block = Py_XNewRef(slot->block), *agent = Py_XNewRef(slot->agent), *done = NULL;
    if (block == NULL || agent == NULL) {
        PyErr_SetString(PyExc_AttributeError, block == NULL ? "block" : "agent");
    } else if (add_effect(effects, encoded, block, slot->index, agent) == 0 &&
               check_full(state, slot, effects) == 0) {
        done = Py_XNewRef(slot->done);
        if (done == NULL) PyErr_SetString(PyExc_AttributeError, "done");
    }
    Py_XDECREF(block);
    Py_XDECREF(agent);
    Py_DECREF(encoded);
    return done;
}

/* write(value, *, key=None) with names or without: 0, or -1 with TypeError. */
static int write_args(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, PyObject **value,
                      PyObject **key) {
    Py_ssize_t count = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    *value = nargs > 0 ? args[0] : NULL;
    *key = Py_None;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        if (PyUnicode_CompareWithASCIIString(name, "key") == 0) {
            *key = args[nargs + i];
        } else if (PyUnicode_CompareWithASCIIString(name, "value") == 0 && *value == NULL) {
            *value = args[nargs + i];
        } else {
            PyErr_Format(PyExc_TypeError, "write() got an unexpected keyword argument %R", name);
            return -1;
        }
    }
    if (nargs <= 1 && *value != NULL) return 0;
    PyErr_SetString(PyExc_TypeError, "write() takes one value, and key= by name");
    return -1;
}

static PyObject *sink_write(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *kwnames) {
    PyObject *value, *key, *written = NULL;
    if (write_args(args, nargs, kwnames, &value, &key) < 0) return NULL;
    const module_state *state = state_of_type(Py_TYPE(self));
    if (state == NULL) return NULL;
    slot_object *slot = current_slot(state);
    if (slot == NULL) return PyErr_Occurred() ? NULL : raise_outside(state, self, Py_False);
    PyObject *effects = dict_get(slot->effects, self, "effects");
    if (effects == NULL || slot->block == NULL || slot->block == Py_None) {
        if (!PyErr_Occurred()) raise_outside(state, self, Py_True);
    } else if (wanted(effects, state->effects_type, "effects") != NULL) {
        written = write_effect(state, self, slot, (effects_object *)effects, value, key);
    }
    Py_XDECREF(effects);
    Py_DECREF(slot);
    return written;
}

PyDoc_STRVAR(write_doc,
             "write($self, value, /, *, key=None)\n"
             "--\n\n"
             "Write one effect of the record being handled; await the result (it is cheap).\n\n"
             "It appears in the system with the commit that covers the record, or never. What\n"
             "None and key mean is the sink's business: a table deletes the row with that key.\n"
             "Raises OutsideAgentError, and TypeError or ValueError for what the sink cannot\n"
             "write.");

static PyMethodDef sink_methods[] = {
    {"write", (PyCFunction)(void (*)(void))sink_write, METH_FASTCALL | METH_KEYWORDS, write_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sink_slots[] = {
    {Py_tp_methods, sink_methods},
    {0, NULL},
};

/* --- tables --------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *written;
    PyObject *_committing;
    PyObject *_cache;
    PyObject *_decode;
    PyObject *undo;
    PyObject *last_key;
    PyObject *last_raw_key;
    const module_state *state;
} overlay_object;

FIELDS_OF(overlay, overlay_object, last_raw_key)

static PyMemberDef overlay_members[] = {
    MEMBER(overlay_object, written),
    MEMBER(overlay_object, _committing),
    MEMBER(overlay_object, _cache),
    MEMBER(overlay_object, _decode),
    MEMBER(overlay_object, undo),
    MEMBER(overlay_object, last_key),
    MEMBER(overlay_object, last_raw_key),
    {NULL, 0, 0, 0, NULL},
};

static PyObject *overlay_new(PyTypeObject *type, PyObject *Py_UNUSED(args),
                             PyObject *Py_UNUSED(kwargs)) {
    const module_state *state = state_of_type(type);
    if (state == NULL) return NULL;
    overlay_object *self = (overlay_object *)type->tp_alloc(type, 0);
    if (self != NULL) self->state = state;
    return (PyObject *)self;
}

static PyObject *overlay_get(PyObject *self_, PyObject *key) {
    overlay_object *self = (overlay_object *)self_;
    PyObject *value = dict_get(self->written, key, "written");
    if (value == NULL && !PyErr_Occurred()) value = dict_get(self->_committing, key, "_committing");
    if (value == NULL && !PyErr_Occurred()) value = dict_get(self->_cache, key, "_cache");
    if (value == NULL && !PyErr_Occurred()) {
        value = PyObject_CallMethodOneArg(self_, self->state->s_load, key);
    }
    if (value == NULL || (PyObject *)Py_TYPE(value) != self->state->snapshot) return value;
    if (self->_decode == NULL) {
        PyErr_SetString(PyExc_AttributeError, "_decode");
        Py_DECREF(value);
        return NULL;
    }
    PyObject *decode = Py_NewRef(self->_decode);
    PyObject *decoded = PyObject_CallOneArg(decode, value);
    Py_DECREF(decode);
    Py_DECREF(value);
    return decoded;
}

static PyMethodDef overlay_methods[] = {
    {"get", overlay_get, METH_O, "The value, own writes first; ABSENT when there is none."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot overlay_slots[] = {
    MEMORY_SLOTS(overlay),
    {Py_tp_new, (void *)overlay_new},
    {Py_tp_members, overlay_members},
    {Py_tp_methods, overlay_methods},
    {0, NULL},
};

typedef struct {
    PyObject_HEAD
    PyObject *encode_key;
    PyObject *default_;
    const module_state *state;
    char encodes_text;
} table_object;

FIELDS_OF(table, table_object, default_)

static PyMemberDef table_members[] = {
    MEMBER(table_object, encode_key),
    {"default", T_OBJECT_EX, offsetof(table_object, default_), 0, NULL},
    {"encodes_text", T_BOOL, offsetof(table_object, encodes_text), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *table_new(PyTypeObject *type, PyObject *Py_UNUSED(args),
                           PyObject *Py_UNUSED(kwargs)) {
    const module_state *state = state_of_type(type);
    if (state == NULL) return NULL;
    table_object *self = (table_object *)type->tp_alloc(type, 0);
    if (self != NULL) self->state = state;
    return (PyObject *)self;
}

/* The table's partition for the running code, owned; NULL without an exception outside. */
static overlay_object *current_overlay(table_object *self) {
    slot_object *slot = current_slot(self->state);
    if (slot == NULL) return NULL;
    PyObject *found = dict_get(slot->tables, (PyObject *)self, "tables");
    Py_DECREF(slot);
    if (found == NULL) return NULL;
    if (wanted(found, self->state->overlay_type, "transaction") == NULL) Py_CLEAR(found);
    return (overlay_object *)found;
}

/* The encoded key, remembered when it is text; owned. */
static PyObject *remembered_key(table_object *self, overlay_object *overlay, PyObject *key) {
    if (key != overlay->last_key) {
        PyObject *raw = encode_key(self->encode_key, self->encodes_text, key);
        if (raw == NULL) return NULL;
        Py_XSETREF(overlay->last_raw_key, raw);
        PyObject *last = PyUnicode_CheckExact(key) ? key : self->state->absent;
        Py_XSETREF(overlay->last_key, Py_NewRef(last));
    }
    PyObject *raw = Py_XNewRef(overlay->last_raw_key);
    if (raw == NULL) PyErr_SetString(PyExc_AttributeError, "last_raw_key");
    return raw;
}

static PyObject *read_inside(table_object *self, overlay_object *overlay, PyObject *key) {
    PyObject *raw = remembered_key(self, overlay, key);
    if (raw == NULL) return NULL;
    PyObject *value = overlay_get((PyObject *)overlay, raw);
    Py_DECREF(raw);
    return value;
}

static PyObject *read_outside(table_object *self, PyObject *key) {
    PyObject *raw = encode_key(self->encode_key, self->encodes_text, key);
    if (raw == NULL) return NULL;
    PyObject *value = PyObject_CallMethodOneArg((PyObject *)self, self->state->s_find, raw);
    Py_DECREF(raw);
    return value;
}

static PyObject *table_get(PyObject *self_, PyObject *key) {
    table_object *self = (table_object *)self_;
    overlay_object *overlay = current_overlay(self);
    if (overlay == NULL && PyErr_Occurred()) return NULL;
    PyObject *value =
        overlay == NULL ? read_outside(self, key) : read_inside(self, overlay, key);
    Py_XDECREF(overlay);
    if (value == NULL || value != self->state->absent) return value;
    Py_DECREF(value);
    if (self->default_ == NULL || self->default_ == Py_None) {
        PyObject *error = PyObject_CallOneArg(PyExc_KeyError, key);
        if (error != NULL) PyErr_SetObject(PyExc_KeyError, error);
        Py_XDECREF(error);
        return NULL;
    }
    PyObject *make = Py_NewRef(self->default_);
    value = PyObject_CallNoArgs(make);
    Py_DECREF(make);
    return value;
}

static int is_scalar(PyObject *value) {
    return PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyFloat_CheckExact(value) ||
           PyBool_Check(value) || PyBytes_CheckExact(value);
}

static int write_inside(table_object *self, overlay_object *overlay, PyObject *key,
                        PyObject *value) {
    PyObject *raw;
    if (key == overlay->last_key) {
        raw = Py_XNewRef(overlay->last_raw_key);
        if (raw == NULL) PyErr_SetString(PyExc_AttributeError, "last_raw_key");
    } else {
        raw = encode_key(self->encode_key, self->encodes_text, key);
    }
    if (raw == NULL) return -1;
    int outcome;
    if (overlay->undo == Py_None && is_scalar(value)) {
        outcome = wanted(overlay->written, &PyDict_Type, "written") == NULL
                      ? -1
                      : PyDict_SetItem(overlay->written, raw, value);
    } else {
        PyObject *put = PyObject_CallMethodObjArgs((PyObject *)overlay, self->state->s_put, raw,
                                                   value, NULL);
        outcome = put == NULL ? -1 : 0;
        Py_XDECREF(put);
    }
    Py_DECREF(raw);
    return outcome;
}

static int table_set(PyObject *self_, PyObject *key, PyObject *value) {
    table_object *self = (table_object *)self_;
    const module_state *state = self->state;
    if (value == NULL) {
        PyObject *removed = PyObject_CallMethodOneArg(self_, state->s_remove, key);
        Py_XDECREF(removed);
        return removed == NULL ? -1 : 0;
    }
    overlay_object *overlay = current_overlay(self);
    if (overlay == NULL) {
        if (PyErr_Occurred()) return -1;
        PyObject *found = PyObject_CallMethodNoArgs(self_, state->s_writable);
        if (found == NULL) return -1;
        if (wanted(found, state->overlay_type, "transaction") == NULL) {
            Py_DECREF(found);
            return -1;
        }
        overlay = (overlay_object *)found;
    }
    int outcome = write_inside(self, overlay, key, value);
    Py_DECREF(overlay);
    return outcome;
}

static PyType_Slot table_slots[] = {
    MEMORY_SLOTS(table),
    {Py_tp_new, (void *)table_new},
    {Py_tp_members, table_members},
    {Py_mp_subscript, (void *)table_get},
    {Py_mp_ass_subscript, (void *)table_set},
    {0, NULL},
};

/* --- module --------------------------------------------------------------------------------- */

#define BASE (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE)
#define FINAL (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC)
#define NAMED(name) "onceward.streams.engine._kernel." name

static PyType_Spec feed_spec = {NAMED("FeedState"), sizeof(feed_object), 0, BASE, feed_slots};
static PyType_Spec slot_spec = {NAMED("SlotState"), sizeof(slot_object), 0, BASE, slot_slots};
static PyType_Spec values_spec = {NAMED("values"), sizeof(values_object), 0, FINAL, values_slots};
static PyType_Spec next_spec = {NAMED("Next"), sizeof(next_object), 0,
                                FINAL | Py_TPFLAGS_DISALLOW_INSTANTIATION, next_slots};
static PyType_Spec lists_spec = {NAMED("OutputLists"), sizeof(lists_object), 0, BASE, lists_slots};
static PyType_Spec topics_spec = {NAMED("OutputTopics"), sizeof(topics_object), 0, BASE,
                                  topics_slots};
static PyType_Spec topic_spec = {NAMED("TopicSend"), sizeof(topic_object), 0, BASE, topic_slots};
static PyType_Spec overlay_spec = {NAMED("Overlay"), sizeof(overlay_object), 0, BASE,
                                   overlay_slots};
static PyType_Spec table_spec = {NAMED("TableAccess"), sizeof(table_object), 0, BASE, table_slots};

static PyType_Spec effects_spec = {NAMED("EffectLists"), sizeof(effects_object), 0, BASE,
                                   effects_slots};
/* nothing of its own: sinks stay objects that can be copied, and with abstract methods */
static PyType_Spec sink_spec = {NAMED("SinkWrite"), sizeof(PyObject), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, sink_slots};

static int add_types(PyObject *module, module_state *state) {
    const struct {
        PyTypeObject **place;
        PyType_Spec *spec;
    } types[] = {
        {&state->feed_type, &feed_spec},     {&state->slot_type, &slot_spec},
        {&state->values_type, &values_spec}, {&state->next_type, &next_spec},
        {&state->lists_type, &lists_spec},   {&state->topics_type, &topics_spec},
        {&state->topic_type, &topic_spec},   {&state->overlay_type, &overlay_spec},
        {&state->table_type, &table_spec},   {&state->effects_type, &effects_spec},
        {&state->sink_type, &sink_spec},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        PyObject *type = PyType_FromModuleAndSpec(module, types[i].spec, NULL);
        if (type == NULL) return -1;
        *types[i].place = (PyTypeObject *)type;
        if (PyModule_AddType(module, (PyTypeObject *)type) < 0) return -1;
    }
    return 0;
}

static int add_names(module_state *state) {
    const struct {
        PyObject **place;
        const char *text;
    } names[] = {
        {&state->s_ask_for_commit, "ask_for_commit"},
        {&state->s_encode, "encode"},
        {&state->s_find, "_find"},
        {&state->s_headers, "headers"},
        {&state->s_is_full, "is_full"},
        {&state->s_key, "key"},
        {&state->s_key_serializer, "key_serializer"},
        {&state->s_load, "_load"},
        {&state->s_outside, "_outside"},
        {&state->s_park, "park"},
        {&state->s_partition, "partition"},
        {&state->s_put, "put"},
        {&state->s_remove, "_remove"},
        {&state->s_send_encoded, "send_encoded"},
        {&state->s_send_given, "_send_given"},
        {&state->s_task, "task"},
        {&state->s_throw, "throw"},
        {&state->s_timestamp, "timestamp"},
        {&state->s_timestamps, "timestamps"},
        {&state->s_value, "value"},
        {&state->s_value_serializer, "value_serializer"},
        {&state->s_writable, "_writable"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *names[i].place = PyUnicode_InternFromString(names[i].text);
        if (*names[i].place == NULL) return -1;
    }
    return 0;
}

static int module_exec(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    const char *pure = getenv("ONCEWARD_PURE_PYTHON");
    if (pure != NULL && strcmp(pure, "1") == 0) {
        PyErr_SetString(PyExc_ImportError, "ONCEWARD_PURE_PYTHON asks for the pure kernel");
        return -1;
    }
    state->pure = PyImport_ImportModule("onceward.streams.engine.pure");
    if (state->pure == NULL) return -1;
    state->current = PyObject_GetAttrString(state->pure, "CURRENT");
    state->absent = PyObject_GetAttrString(state->pure, "ABSENT");
    state->snapshot = PyObject_GetAttrString(state->pure, "Snapshot");
    if (state->current == NULL || state->absent == NULL || state->snapshot == NULL) return -1;
    if (!PyContextVar_CheckExact(state->current)) {
        PyErr_SetString(PyExc_ImportError, "CURRENT is no context variable");
        return -1;
    }
    return add_names(state) < 0 ? -1 : add_types(module, state);
}

/* Everything in the state is an object. */
#define STATE_OBJECTS (sizeof(module_state) / sizeof(PyObject *))

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    PyObject **objects = PyModule_GetState(module);
    if (objects == NULL) return 0;
    for (size_t i = 0; i < STATE_OBJECTS; i++) Py_VISIT(objects[i]);
    return 0;
}

static int module_clear(PyObject *module) {
    PyObject **objects = PyModule_GetState(module);
    if (objects == NULL) return 0;
    for (size_t i = 0; i < STATE_OBJECTS; i++) Py_CLEAR(objects[i]);
    return 0;
}

static void module_free(void *module) { (void)module_clear((PyObject *)module); }

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_kernel",
    .m_doc = "Compiled form of onceward.streams.engine.pure.",
    .m_size = sizeof(module_state),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&definition); }
