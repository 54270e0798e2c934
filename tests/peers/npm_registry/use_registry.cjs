// What a Node program does with two registry clients from npm; nothing here knows of onceward.
// usage: node use_registry.cjs URL write|read < JSON > JSON   (bytes are hex)
const assert = require('assert')
const kafkajs = require('@kafkajs/confluent-schema-registry')
const confluent = require('@confluentinc/schemaregistry')
const protobuf = require('@bufbuild/protobuf')
const { Ajv2020 } = require('ajv/dist/2020')
const wkt = require('@bufbuild/protobuf/wkt')

const AVRO = {
  type: 'record', name: 'Order', namespace: 'npm',
  fields: [{ name: 'id', type: 'string' }, { name: 'amount', type: 'int' }],
}
const WIDER = { ...AVRO, fields: [...AVRO.fields, { name: 'note', type: 'string', default: '' }] }
const NARROWER = { ...AVRO, fields: [...AVRO.fields, { name: 'more', type: 'string' }] }
const JSON_SCHEMA = {
  $schema: 'http://json-schema.org/draft-07/schema#', title: 'Order', type: 'object',
  additionalProperties: false, required: ['id'],
  properties: { id: { type: 'string' }, amount: { type: 'integer' } },
}
const PROTO = 'syntax = "proto3"; package npm; message Order { string id = 1; int32 amount = 2; }'
const ORDER = { id: 'x', amount: 7 }

const plain = (message) => ({ id: message.id, amount: message.amount })

async function kafkajsWrites(url) {
  const registry = new kafkajs.SchemaRegistry({ host: url })
  const kinds = { AVRO: JSON.stringify(AVRO), JSON: JSON.stringify(JSON_SCHEMA), PROTOBUF: PROTO }
  const written = {}
  for (const [type, schema] of Object.entries(kinds)) {
    const subject = `kafkajs/${type}-value`
    const { id } = await registry.register({ type, schema }, { subject })
    assert.strictEqual((await registry.register({ type, schema }, { subject })).id, id)
    assert.strictEqual(await registry.getLatestSchemaId(subject), id)
    assert.strictEqual(await registry.getRegistryId(subject, 1), id)
    assert.strictEqual(await registry.getRegistryIdBySchema(subject, { type, schema }), id)
    const data = await registry.encode(id, ORDER)
    const fresh = new kafkajs.SchemaRegistry({ host: url })
    assert.deepStrictEqual(plain(await fresh.decode(data)), ORDER)
    written[`kafkajs ${type}`] = data.toString('hex')
  }
  const subject = 'kafkajs/AVRO-value'
  const wide = await registry.register({ type: 'AVRO', schema: JSON.stringify(WIDER) }, { subject })
  assert.strictEqual(await registry.getLatestSchemaId(subject), wide.id)
  const readerSchema = AVRO
  const data = await registry.encode(wide.id, { ...ORDER, note: 'n' })
  assert.deepStrictEqual(plain(await registry.decode(data, { AVRO: { readerSchema } })), ORDER)
  const refused = registry.register({ type: 'AVRO', schema: JSON.stringify(NARROWER) }, { subject })
  await assert.rejects(refused, /incompatible/)
  await assert.rejects(registry.getLatestSchemaId('kafkajs/nobody'), /not found/)
  return written
}

function clientOf(url) {
  return confluent.SchemaRegistryClient.newClient({ baseURLs: [url] })
}

async function confluentManages(url) {
  const client = clientOf(url)
  const subject = 'confluent-managed'
  const info = { schemaType: 'AVRO', schema: JSON.stringify(AVRO) }
  const wider = { schemaType: 'AVRO', schema: JSON.stringify(WIDER) }
  const narrower = { schemaType: 'AVRO', schema: JSON.stringify(NARROWER) }
  const id = await client.register(subject, info)
  assert.strictEqual(await client.getId(subject, info), id)
  assert.strictEqual((await client.getBySubjectAndId(subject, id)).schema, info.schema)
  assert.strictEqual(await client.getVersion(subject, info), 1)
  assert.strictEqual(await client.testCompatibility(subject, 1, wider), true)
  assert.strictEqual(await client.testSubjectCompatibility(subject, wider), true)
  assert.strictEqual(await client.testSubjectCompatibility(subject, narrower), false)
  await assert.rejects(client.register(subject, narrower), (error) => error.errorCode === 40901)
  await client.register(subject, { ...wider, metadata: { properties: { owner: 'ann' } } })
  const latest = await client.getLatestSchemaMetadata(subject)
  assert.strictEqual(latest.version, 2)
  assert.strictEqual((await client.getLatestWithMetadata(subject, { owner: 'ann' })).version, 2)
  const { guid } = latest
  assert.strictEqual((await client.getByGuid(guid)).schema, wider.schema)
  assert.deepStrictEqual(await client.getAllVersions(subject), [1, 2])
  assert.ok((await client.getAllSubjects()).includes(subject))
  assert.strictEqual(await client.updateCompatibility(subject, 'FULL'), 'FULL')
  assert.strictEqual(await client.getCompatibility(subject), 'FULL')
  await client.updateConfig('confluent-alias', { alias: subject })
  assert.strictEqual((await client.getLatestSchemaMetadata('confluent-alias')).subject, subject)
  assert.strictEqual(await client.deleteSubjectVersion(subject, 1), 1)
  assert.deepStrictEqual(await client.deleteSubject(subject), [2])
  assert.deepStrictEqual(await client.deleteSubject(subject, true), [1, 2])
}

async function confluentWrites(url, descriptors) {
  const client = clientOf(url)
  const written = {}
  const value = confluent.SerdeType.VALUE
  const latest = { useLatestVersion: true, autoRegisterSchemas: false }
  await client.register('npm-avro-value', { schemaType: 'AVRO', schema: JSON.stringify(AVRO) })
  const avro = new confluent.AvroSerializer(client, value, latest)
  written['confluent AVRO'] = await avro.serialize('npm-avro', ORDER)
  const json = { schemaType: 'JSON', schema: JSON.stringify(JSON_SCHEMA) }
  await client.register('npm-json-value', json)
  const jsons = new confluent.JsonSerializer(client, value, { ...latest, validate: true })
  written['confluent JSON'] = await jsons.serialize('npm-json', ORDER)
  await assert.rejects(jsons.serialize('npm-json', { amount: 'x' }))
  const registry = protobuf.createMutableRegistry()
  for (const file of files(descriptors)) for (const type of file.messages) registry.add(type)
  const proto = new confluent.ProtobufSerializer(client, value, {
    autoRegisterSchemas: true, registry,
  })
  const whole = protobuf.create(registry.getMessage('npm.Whole'), {
    order: protobuf.create(registry.getMessage('npm.Order'), ORDER),
    at: { seconds: 5n },
  })
  written['confluent PROTOBUF'] = await proto.serialize('npm-proto', whole)
  const hex = Object.entries(written).map(([name, data]) => [name, data.toString('hex')])
  return Object.fromEntries(hex)
}

function files(descriptors) {
  const bytes = Buffer.from(descriptors, 'hex')
  const set = protobuf.fromBinary(wkt.FileDescriptorSetSchema, bytes)
  return [...protobuf.createFileRegistry(set).files]
}

function readerOfAnyDraft(url) {
  const ajvInstance = new Ajv2020() // the client's own knows draft 7 only
  ajvInstance.addMetaSchema(require('ajv/dist/refs/json-schema-draft-07.json'))
  return new kafkajs.SchemaRegistry({ host: url }, { JSON: { ajvInstance } })
}

async function reads(url, data) {
  const kafkajsClient = readerOfAnyDraft(url)
  const client = clientOf(url)
  const value = confluent.SerdeType.VALUE
  const readers = {
    AVRO: new confluent.AvroDeserializer(client, value, {}),
    JSON: new confluent.JsonDeserializer(client, value, { validate: true }),
    PROTOBUF: new confluent.ProtobufDeserializer(client, value, {}),
  }
  const found = {}
  for (const [name, { topic, hex }] of Object.entries(data)) {
    const type = name.split(' ').pop()
    const bytes = Buffer.from(hex, 'hex')
    const read = { confluent: await readers[type].deserialize(topic, bytes) }
    if (!name.includes('imports')) read.kafkajs = await kafkajsClient.decode(bytes)
    found[name] = Object.fromEntries(
      Object.entries(read).map(([who, got]) => [who, plain(got.order ?? got)]))
  }
  return found
}

async function main() {
  const [url, phase] = process.argv.slice(2)
  const input = JSON.parse(require('fs').readFileSync(0, 'utf8'))
  if (phase === 'read') return reads(url, input.data)
  await confluentManages(url)
  return { ...await kafkajsWrites(url), ...await confluentWrites(url, input.descriptors) }
}

main().then(
  (answer) => { console.log(JSON.stringify(answer)); process.exit(0) },
  (error) => { console.error(error); process.exit(1) },
)
