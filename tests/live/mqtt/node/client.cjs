// MQTT.js as one client: `node client.cjs '{"url": ..., "options": ..., "subscribe": [[filter, {options}]], "expect": N}'`
// Prints one JSON object a line: {connack}, {suback}, {message}, {published}, {closed}; reads commands, one a line, from standard
// input: {"publish": [topic, base64, {options}]}, {"destroy": true}, {"end": true}.
const fs = require("fs");
const mqtt = require("mqtt");
const readline = require("readline");

const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const binary = (value) => (value === undefined ? undefined : Buffer.from(value, "base64"));

const plan = JSON.parse(process.argv[2]);
const options = { reconnectPeriod: 0, connectTimeout: 10000, ...plan.options };
if (plan.ca) options.ca = fs.readFileSync(plan.ca);
const client = mqtt.connect(plan.url, options);

client.on("connect", (connack) => {
  say({ connack: { sessionPresent: connack.sessionPresent, properties: connack.properties || {} } });
  for (const [filter, how] of plan.subscribe || []) {
    client.subscribe(filter, how, (fault, granted) => say({ suback: fault ? String(fault) : granted.map((one) => one.qos) }));
  }
});
client.on("message", (topic, payload, packet) => {
  const properties = { ...(packet.properties || {}) };
  if (properties.correlationData) properties.correlationData = properties.correlationData.toString("base64");
  say({ message: { topic, payload: payload.toString("base64"), qos: packet.qos, retain: packet.retain, properties } });
});
client.on("disconnect", (packet) => say({ disconnect: packet.reasonCode }));
client.on("error", (fault) => say({ error: String(fault) }));
client.on("close", () => {
  say({ closed: true });
  process.exit(0);
});

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const command = JSON.parse(line);
  if (command.publish) {
    const [topic, payload, how] = command.publish;
    const correlation = binary(how.properties && how.properties.correlationData);
    if (correlation) how.properties.correlationData = correlation;
    client.publish(topic, binary(payload), how, (fault) => say({ published: fault ? String(fault) : true }));
  }
  if (command.destroy) client.stream.destroy();
  if (command.end) client.end();
});
