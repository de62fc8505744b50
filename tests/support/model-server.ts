/**
 * A server of a model, as a process: `model-server.js PORT LOG MILLISECONDS [asleep|wrong]`. It is ready after that time, answers each request
 * with its own name, and writes a line into LOG for each start. What it is asked for may be a crash, an endless or a slow answer, or its variables.
 */
import { spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';

const [port = '', log = '', loadMs = '0', how] = process.argv.slice(2);
const note = (text: string): void => appendFileSync(log, `${text}\n`);
note(`start ${process.pid}`);
if (how === 'wrong') {
  process.stderr.write('loading\nerror: unknown argument: --frobnicate\n');
  process.exit(1);
}
// A worker of its own, as vLLM has.
const worker = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
note(`worker ${worker.pid}`);

let isReady = false;
let isAsleep = false;
const chunk = (delta: object, finish: string | null = null): string =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;

function answer(asked: string, response: ServerResponse): void {
  if (asked === 'crash') process.exit(3);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const said = asked === 'variables' ? JSON.stringify(process.env) : `asleep: ${isAsleep}`;
  response.write(chunk({ role: 'assistant', content: said }));
  if (asked === 'crash later') return void setTimeout(() => process.exit(3), 100);
  if (asked === 'endless') return;
  if (asked === 'slow') note('slow');
  const usage = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 };
  const end = `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [], usage })}\n\n`;
  setTimeout(() => response.end(`${chunk({}, 'stop')}${end}data: [DONE]\n\n`), asked === 'slow' ? 3_000 : 20);
}

/** As vLLM loads adapters, where a variable allows it. */
const adapters = new Map<string, string>();
interface Adapter {
  readonly lora_name: string;
  readonly lora_path?: string;
}
function change(url: string, { lora_name: name, lora_path: path }: Adapter, response: ServerResponse): void {
  if (process.env['VLLM_ALLOW_RUNTIME_LORA_UPDATING'] !== 'True') return void response.writeHead(404).end('{}');
  note(path === undefined ? `unload ${name}` : `load ${name} ${path}`);
  if (url.includes('unload')) adapters.delete(name);
  else adapters.set(name, path!);
  response.end('{}');
}
const unknown = (model: string): string =>
  JSON.stringify({ error: { message: `The model ${model} does not exist.`, type: 'NotFoundError', code: 404 } });

const server = createServer((request, response) => {
  const { url = '', method } = request;
  if (!isReady) return void response.writeHead(503).end('{"error":{"message":"Loading model","code":503}}');
  if (url === '/health') return void response.end('{}');
  if (url.startsWith('/sleep') || url === '/wake_up') {
    isAsleep = url !== '/wake_up';
    note(isAsleep ? 'sleep' : 'wake');
    return void response.end();
  }
  if (method === 'GET') {
    const data = [{ id: 'a' }, { id: 'b' }, ...[...adapters].map(([id, root]) => ({ id, root, parent: 'a' }))];
    return void response.end(JSON.stringify({ object: 'list', data }));
  }
  let body = '';
  request.on('data', (text: Buffer) => (body += text.toString()));
  request.on('end', () => {
    if (url.endsWith('_lora_adapter')) return change(url, JSON.parse(body) as Adapter, response);
    const { messages, model } = JSON.parse(body) as { messages: { content: string }[]; model: string };
    if (model === 'legal' || model === 'sold')
      if (!adapters.has(model)) return void response.writeHead(404).end(unknown(model));
    answer(messages.at(-1)!.content, response);
  });
});
setTimeout(() => (isReady = true), Number(loadMs));
server.listen(Number(port), '127.0.0.1');
process.on('SIGTERM', () => process.exit(0));
