// Streams one answer: node chat.mjs MODEL PROMPT
import { Client } from 'rumbo';

const [model, prompt] = process.argv.slice(2);
const client = await Client.connect({ startDaemon: true });
const stream = client.chat(model, prompt);
for await (const chunk of stream) process.stdout.write(chunk.text);
console.log(`\n${stream.finished.timings.decodeTokS.toFixed(1)} tokens/s`);
client.close();
