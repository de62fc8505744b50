// What the catalogue is shown with: answers as a vLLM with one model does.
import http from 'node:http';

const model = 'qwen3-32b';
const words = ['Hello', '! How', ' can I', ' help', ' you', ' today?'];
const tokenMs = 25;

/** Resolves with the server and its address; the port is that of vLLM, which the picture shows. */
export async function startServer() {
  const server = http.createServer((request, response) => {
    request.resume().once('end', () => void answer(request, response));
  });
  await new Promise((resolve, reject) => server.once('error', reject).listen(8000, '127.0.0.1', resolve));
  return { url: 'http://127.0.0.1:8000/v1', close: () => server.close() };
}

async function answer({ url }, response) {
  if (url === '/v1/models')
    return json(response, 200, { object: 'list', data: [{ id: model, owned_by: 'vllm', max_model_len: 40_960 }] });
  if (url !== '/v1/chat/completions') return json(response, 404, {});
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = (fields) =>
    response.write(
      `data: ${JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion.chunk', model, ...fields })}\n\n`,
    );
  for (const content of words) {
    await new Promise((resolve) => setTimeout(resolve, tokenMs));
    send({ choices: [{ index: 0, delta: { content }, finish_reason: null }] });
  }
  send({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
  send({ choices: [], usage: { prompt_tokens: 9, completion_tokens: words.length, total_tokens: 9 + words.length } });
  response.end('data: [DONE]\n\n');
}

function json(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}
