/* Repeated products from Python: one look-up by layouts and options, and the launches of a call that ran before.

   The table takes only what the Python of this package has run, and answers NotImplemented for anything else: then Python decides. The file
   uses Python's stable interface, so that one image serves every release from 3.11 on. Functions of other libraries come as addresses. */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 3, OPTIONS = 16, GIVEN = OPERANDS + OPTIONS, VIEW = 5, KEY = 2 + OPERANDS * VIEW + OPTIONS, SLOTS = 1024 };
enum { MOST_BYTES = 4096, MOST_ARGUMENTS = 512 };
/* The words of a program: whether it needs multiples of 16, whether it may be recorded, whether A and B change places, and the four distances
   of addresses at which C may share bytes with A and B. Then the number of pointers, and for each where it lies among the arguments, its base,
   and bytes; the number of launches, and for each the function, the grid, the threads, the shared bytes, the number of arguments, and where
   they lie. */
enum { ALIGNED, RECORDED, SWAPS, NEAR, OWN = NEAR + 4 };

typedef struct { /* dlpack.h */
  void *data;
  int32_t device[2], dimensions;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t offset;
} Tensor;

typedef struct {
  long users; /* the table, and calls that launch without the GIL */
  int64_t key[KEY];
  PyObject *held, *result, *space; /* of `held` are the makers of the two, and the bytes of the next */
  const int64_t *words;
  const char *memory;
  size_t bytes;
} Entry;

typedef struct {
  uint64_t address[5];
  PyObject *result, *space;
  void *stream;
} Call;

static Entry *table[SLOTS];
static PyTypeObject *array_type, *tensor_type, *parameter_type;
static PyObject *watched, *is_recording, *record, *written, *level, *tangents, *text_level, *text_shape, *text_strides, *text_dtype, *text_data, *text_ptr, *text_grad, *text_neg;
static int (*context_of)(void **), (*is_capturing)(void *, int *);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static intptr_t (*array_stream)(void);
static int (*tensor_view)(void *, Tensor *), (*tensor_stream)(int, int32_t, void **);
static PyObject *(*usual)(PyObject *, PyObject *const *, size_t, PyObject *), *parameters[GIVEN], *usually[GIVEN];
extern char **environ;
/* Where CuPy's arrays hold what `view` reads, by bytes: vectors of extents and of strides, the type, the memory, and there its address. */
enum { SHAPE, STRIDES, TYPE, MEMORY, ADDRESS, PLACES };
static size_t in_array[PLACES];
static PyTypeObject *memory_type; /* NULL if the places are not known */
#define AT(type, of, bytes) (*(type const *)((const char *)(of) + (bytes)))
/* Functions of PyTorch's libraries, and where a tensor of Python's holds PyTorch's; NULL if Python's are to be asked. */
static _Bool (*records)(void), (*includes)(uint16_t), (*asks_gradient)(const void *), (*is_negated)(const void *);
static int64_t (*modes)(void);
static uint16_t older_vmap;
static size_t in_tensor;

static int pair(PyObject *owner, PyObject *name, int64_t *to) {
  PyObject *two = PyObject_GetAttr(owner, name);
  int fits = two && PyTuple_Check(two) && PyTuple_Size(two) == 2;
  for (int i = 0; fits && i < 2; i++) to[i] = PyLong_AsLongLong(PyTuple_GetItem(two, i));
  Py_XDECREF(two);
  return fits;
}

/* Where a matrix lies, and its type and device; 0 for what is no matrix here. An exception may be set. */
static int view(PyObject *x, int64_t *to, uint64_t *address) {
  if (Py_TYPE(x) == array_type) {
    if (memory_type && Py_TYPE(AT(PyObject *, x, in_array[MEMORY])) == memory_type) {
      const int64_t *shape = AT(const int64_t *, x, in_array[SHAPE]), *strides = AT(const int64_t *, x, in_array[STRIDES]);
      if (AT(const int64_t *, x, in_array[SHAPE] + 8) - shape != 2) return 0;
      memcpy(to, shape, 16), memcpy(to + 2, strides, 16);
      to[4] = AT(int64_t, x, in_array[TYPE]), *address = AT(uint64_t, AT(PyObject *, x, in_array[MEMORY]), in_array[ADDRESS]);
      return 1;
    }
    if (!pair(x, text_shape, to) || !pair(x, text_strides, to + 2)) return 0;
    PyObject *type = PyObject_GetAttr(x, text_dtype), *data = PyObject_GetAttr(x, text_data);
    PyObject *number = data ? PyObject_GetAttr(data, text_ptr) : NULL;
    if (number) *address = PyLong_AsUnsignedLongLong(number);
    to[4] = (int64_t)(intptr_t)type; /* one object for each of the usual types, which the table keeps alive */
    Py_XDECREF(type), Py_XDECREF(data), Py_XDECREF(number);
    return type && number;
  }
  Tensor tensor;
  if (tensor_view(x, &tensor) || tensor.dimensions != 2 || tensor.code > 2) return 0;
  memcpy(to, tensor.shape, 16), memcpy(to + 2, tensor.strides, 16);
  to[4] = tensor.code | tensor.bits << 8 | (int64_t)tensor.lanes << 16 | (int64_t)tensor.device[0] << 32 | (int64_t)tensor.device[1] << 40;
  *address = (uint64_t)(uintptr_t)tensor.data + tensor.offset;
  return 1;
}

static int is_tensor(PyObject *x) { return tensor_type && (Py_TYPE(x) == tensor_type || Py_TYPE(x) == parameter_type); }

static int says(PyObject *answer) { /* 1 and 0 for True and False, -1 for an exception */
  int found = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  return found;
}

/* Whether something must see operators, as `watched` of Python tells; -1 for an exception. */
static int is_watched(void) {
  if (!modes) return says(PyObject_CallNoArgs(watched));
  if (modes() > 0 || includes(older_vmap)) return 1;
  PyObject *inside = PyObject_CallNoArgs(level), *tangent = inside ? PyObject_GetAttr(tangents, text_level) : NULL;
  int found = tangent ? inside != Py_None || PyLong_AsLong(tangent) >= 0 : -1;
  Py_XDECREF(inside), Py_XDECREF(tangent);
  return PyErr_Occurred() ? -1 : found;
}

/* The key and the addresses of a call; `asks` for gradients. 0 if Python is to decide, perhaps with an exception. */
static int key_of(PyObject *const *given, int64_t *key, uint64_t *address, int *asks) {
  PyObject *first = given[0];
  int tensors = is_tensor(first);
  if (!tensors && (!array_type || Py_TYPE(first) != array_type)) return 0;
  memset(key, 0, KEY * sizeof *key);
  for (int i = 0; i < OPERANDS; i++) {
    PyObject *x = given[i];
    if (x == Py_None && i == 2) {
      key[2 + i * VIEW] = -1, address[2] = 0;
      continue;
    }
    if (tensors ? !is_tensor(x) : Py_TYPE(x) != array_type) return 0;
    if (!view(x, key + 2 + i * VIEW, address + i)) return 0;
    if (!tensors) continue;
    int negated = modes ? is_negated((char *)x + in_tensor) : says(PyObject_CallMethodObjArgs(x, text_neg, NULL));
    int grad = negated ? -1 : modes ? asks_gradient(AT(void *, x, in_tensor)) : says(PyObject_GetAttr(x, text_grad));
    if (grad < 0) return 0;
    *asks |= grad;
  }
  if (address[0] == address[1]) return 0; /* B may be the transpose of A */
  void *context = NULL;
  if (context_of(&context) || !context) return 0;
  key[0] = (int64_t)(intptr_t)(tensors ? tensor_type : array_type), key[1] = (int64_t)(intptr_t)context;
  for (int i = 0; i < OPTIONS; i++) key[2 + OPERANDS * VIEW + i] = (int64_t)(intptr_t)given[OPERANDS + i];
  return !PyErr_Occurred();
}

static Entry **slot(const int64_t *key) {
  uint64_t hash = 0;
  for (int i = 0; i < KEY; i++) hash = (hash ^ (uint64_t)key[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
  return &table[hash % SLOTS];
}

static void leave(Entry *entry) {
  if (--entry->users) return;
  Py_DECREF(entry->held);
  free(entry);
}

/* Everything is issued from memory of this call alone: other threads may issue the same program. */
static int issue(const Entry *entry, const Call *call) {
  const int64_t *own = entry->words + OWN;
  char memory[MOST_BYTES] __attribute__((aligned(16)));
  void *arguments[MOST_ARGUMENTS];
  memcpy(memory, entry->memory, entry->bytes);
  for (int64_t pointers = *own++; pointers--; own += 3) {
    uint64_t pointer = call->address[own[1]] + (uint64_t)own[2];
    memcpy(memory + own[0], &pointer, sizeof pointer);
  }
  for (int64_t launches = *own++; launches--; own += 9 + own[8]) {
    for (int64_t i = 0; i < own[8]; i++) arguments[i] = memory + own[9 + i];
    unsigned n[7];
    for (int i = 0; i < 7; i++) n[i] = (unsigned)own[1 + i];
    int status = launch((void *)own[0], n[0], n[1], n[2], n[3], n[4], n[5], n[6], call->stream, arguments, NULL);
    if (status) return status;
  }
  return 0;
}

/* Launch, into `out` or a new result; 0 if Python is to decide, perhaps with an exception. */
static int run(const Entry *entry, PyObject *out, Call *call) {
  const int64_t *words = entry->words, *near = words + NEAR;
  uint64_t *at = call->address;
  int state = 0, tensors = entry->key[0] != (int64_t)(intptr_t)array_type;
  int64_t ignored[VIEW];
  if (out != Py_None) {
    int64_t left = (int64_t)(at[0] - at[2]), right = (int64_t)(at[1] - at[2]);
    if ((near[0] < left && left < near[1]) || (near[2] < right && right < near[3])) return 0;
  }
  if (!tensors) call->stream = (void *)array_stream();
  else if (tensor_stream((int)(entry->key[6] >> 32 & 255), (int32_t)(entry->key[6] >> 40), &call->stream)) return 0;
  if (is_capturing(call->stream, &state) || state) return 0;
  if (entry->space != Py_None && (!(call->space = PyObject_CallNoArgs(entry->space)) || !view(call->space, ignored, at + 3))) return 0;
  call->result = out == Py_None ? PyObject_CallNoArgs(entry->result) : Py_NewRef(out);
  if (!call->result || (out == Py_None && !view(call->result, ignored, at + 2))) return 0;
  if (words[ALIGNED] && (at[0] | at[1] | at[2] | at[3]) % 16) return 0;
  if (words[SWAPS]) { uint64_t first = at[0]; at[0] = at[1], at[1] = first; }
  int status;
  Py_BEGIN_ALLOW_THREADS /* a full queue of launches waits for the GPU, which may wait for a Python callback */
  status = issue(entry, call);
  Py_END_ALLOW_THREADS
  return !status; /* what was issued is issued again by Python: C is not read */
}

static PyObject *decide_anew(void) {
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL; /* Ctrl-C */
    PyErr_Clear();
  }
  return Py_NewRef(Py_NotImplemented);
}

/* The result; NULL if Python is to decide, perhaps with an exception. */
static PyObject *run_kept(Entry *entry, PyObject *const *given, Call *call, int asks) {
  if (is_tensor(given[0]) && is_watched()) return NULL;
  if (asks && (asks = modes ? records() : says(PyObject_CallNoArgs(is_recording)))) {
    if (asks < 0 || !entry->words[RECORDED]) return NULL;
    return PyObject_CallFunctionObjArgs(record, given[0], given[1], NULL);
  }
  int done = run(entry, given[2], call);
  Py_XDECREF(call->space);
  if (done && is_tensor(given[2])) { /* gradients that need what it held are refused; of inference there are none */
    PyObject *told = PyObject_CallFunctionObjArgs(written, given[2], NULL);
    if (!told) PyErr_Clear();
    Py_XDECREF(told);
  }
  if (done) return call->result;
  Py_XDECREF(call->result);
  return NULL;
}

/* Whether the environment says what multiplies. */
static int is_settled(void) {
  for (char **at = environ; at && *at; at++)
    if (!strncmp(*at, "BILINEAR_", 9) && (!strncmp(*at + 9, "USE_LIBRARY=", 12) || !strncmp(*at + 9, "DEVICE=", 7))) return 1;
  return 0;
}

static PyObject *find(PyObject *const *given) {
  int64_t key[KEY];
  Call call;
  PyObject *result = NULL;
  int asks = 0;
  memset(&call, 0, sizeof call);
  if (!is_settled() && key_of(given, key, call.address, &asks)) {
    Entry *entry = *slot(key);
    if (entry && !memcmp(entry->key, key, sizeof key)) {
      entry->users++;
      result = run_kept(entry, given, &call, asks);
      leave(entry);
    }
  }
  return result ? result : decide_anew();
}

static PyObject *const *items(PyObject *tuple, PyObject **to) {
  for (int i = 0; i < GIVEN; i++) to[i] = PyTuple_GetItem(tuple, i);
  return to;
}

static PyObject *replay(PyObject *module, PyObject *told) {
  PyObject *given[GIVEN];
  return find(items(told, given));
}

/* What stands before the usual vectorcall of `matmul`. Names are compared by identity, and whatever else is given is Python's. */
static PyObject *call(PyObject *matmul, PyObject *const *arguments, size_t flagged, PyObject *names) {
  size_t count = flagged & SIZE_MAX >> 1, named = names ? (size_t)PyTuple_Size(names) : 0; /* the highest bit is a flag */
  PyObject *given[GIVEN], *result = NULL;
  int fits = count <= OPERANDS;
  memcpy(given, usually, sizeof given);
  for (size_t i = 0; fits && i < count; i++) given[i] = arguments[i];
  for (size_t i = 0, j; fits && i < named; i++) {
    for (j = count; j < GIVEN && PyTuple_GetItem(names, i) != parameters[j]; j++) continue;
    if ((fits = j < GIVEN)) given[j] = arguments[count + i];
  }
  if (fits && given[0] && given[1] && !(result = find(given))) return NULL;
  if (result && result != Py_NotImplemented) return result;
  Py_XDECREF(result);
  return usual(matmul, arguments, flagged, names);
}

/* (given, (words, memory, maker of a result, maker of a workspace or None, ... what else is to live)) */
static PyObject *keep(PyObject *module, PyObject *told) {
  int64_t key[KEY];
  uint64_t address[OPERANDS];
  int asks = 0;
  PyObject *given[GIVEN], *held = PyTuple_GetItem(told, 1);
  if (!key_of(items(PyTuple_GetItem(told, 0), given), key, address, &asks)) return decide_anew();
  Entry *entry = calloc(1, sizeof *entry), **at = slot(key), *before = *at;
  if (!entry) return PyErr_NoMemory();
  memcpy(entry->key, key, sizeof key);
  entry->users = 1, entry->held = Py_NewRef(held);
  entry->words = (const int64_t *)PyBytes_AsString(PyTuple_GetItem(held, 0));
  entry->memory = PyBytes_AsString(PyTuple_GetItem(held, 1)), entry->bytes = PyBytes_Size(PyTuple_GetItem(held, 1));
  entry->result = PyTuple_GetItem(held, 2), entry->space = PyTuple_GetItem(held, 3);
  *at = entry;
  if (before) leave(before);
  return Py_NewRef(Py_None);
}

static PyObject *forget(PyObject *module, PyObject *nothing) {
  for (int i = 0; i < SLOTS; i++) {
    Entry *entry = table[i];
    table[i] = NULL;
    if (entry) leave(entry);
  }
  return Py_NewRef(Py_None);
}

static void *number(PyObject *of, int i) { return (void *)PyLong_AsUnsignedLongLong(PyTuple_GetItem(of, i)); }

/* (cuCtxGetCurrent, cuStreamIsCapturing, cuLaunchKernel) */
static PyObject *use_driver(PyObject *module, PyObject *told) {
  context_of = number(told, 0), is_capturing = number(told, 1), launch = number(told, 2);
  return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* (type, what gives the handle of the current stream, then nothing or the places, and the type of the memory) */
static PyObject *use_arrays(PyObject *module, PyObject *told) {
  array_type = (PyTypeObject *)Py_NewRef(PyTuple_GetItem(told, 0)), array_stream = number(told, 1), memory_type = NULL;
  if (PyTuple_Size(told) > 2) {
    for (int i = 0; i < PLACES; i++) in_array[i] = (size_t)number(told, 2 + i);
    memory_type = (PyTypeObject *)Py_NewRef(PyTuple_GetItem(told, 2 + PLACES));
  }
  return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* (type, type of parameters, what views a tensor, what gives a stream, whether operators are watched, whether gradients are recorded, and
   what records them, and what is told of tensors that were written; then nothing, or the functions of PyTorch's libraries, the place in a
   tensor, the key of the older vmap, the level of functorch, and the module with that of tangents) */
static PyObject *use_tensors(PyObject *module, PyObject *told) {
  tensor_view = number(told, 2), tensor_stream = number(told, 3), modes = NULL;
  PyObject **functions[] = {&watched, &is_recording, &record, &written};
  for (int i = 0; i < 4; i++) *functions[i] = Py_NewRef(PyTuple_GetItem(told, 4 + i));
  if (PyTuple_Size(told) > 8) {
    records = number(told, 8), includes = number(told, 9), asks_gradient = number(told, 10), is_negated = number(told, 11);
    in_tensor = (size_t)number(told, 13), older_vmap = (uint16_t)(size_t)number(told, 14);
    level = Py_NewRef(PyTuple_GetItem(told, 15)), tangents = Py_NewRef(PyTuple_GetItem(told, 16)), modes = number(told, 12);
  }
  parameter_type = (PyTypeObject *)Py_NewRef(PyTuple_GetItem(told, 1)), tensor_type = (PyTypeObject *)Py_NewRef(PyTuple_GetItem(told, 0));
  return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* (names of parameters, their defaults, of A and B those of none, the usual vectorcall); the address of the one that may stand before it */
static PyObject *stand_before(PyObject *module, PyObject *told) {
  Py_INCREF(told); /* for ever */
  items(PyTuple_GetItem(told, 0), parameters), items(PyTuple_GetItem(told, 1), usually);
  usually[0] = usually[1] = NULL, usual = number(told, 2);
  return PyErr_Occurred() ? NULL : PyLong_FromVoidPtr((void *)call);
}

static PyMethodDef methods[] = {{"replay", replay, METH_O, NULL},          {"keep", keep, METH_O, NULL},
                                {"forget", forget, METH_NOARGS, NULL},     {"use_driver", use_driver, METH_O, NULL},
                                {"use_arrays", use_arrays, METH_O, NULL},  {"use_tensors", use_tensors, METH_O, NULL},
                                {"stand_before", stand_before, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "bilinear_replay", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_bilinear_replay(void) {
  PyObject **texts[] = {&text_shape, &text_strides, &text_dtype, &text_data, &text_ptr, &text_grad, &text_neg, &text_level};
  const char *names[] = {"shape", "strides", "dtype", "data", "ptr", "requires_grad", "is_neg", "_current_level"};
  for (int i = 0; i < 8; i++)
    if (!(*texts[i] = PyUnicode_InternFromString(names[i]))) return NULL;
  return PyModule_Create(&definition);
}
