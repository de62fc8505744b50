/** Large bodies of every family and kind, sent at once, as one who wants to stop the service would send them. */
import { connect } from 'node:net';
import { pngOf } from '../../support/image-files.ts';

export interface Attack {
  readonly name: string;
  readonly path: string;
  /** How many of them are sent at once, and of how many bytes each: fewer where that is refused for its size alone. */
  readonly count: number;
  readonly bytes: number;
  readonly contentType?: string;
  body(bytes: number): Buffer;
}

const megabyte = 1_000_000;

/** JSON of the fields, with as much in the place of `@@` as makes it so long: of this text, as it stands in JSON. */
function filled(fields: object, unit: string | ((bytes: number) => string), bytes: number): Buffer {
  const [before = '', after = ''] = JSON.stringify(fields).split('@@');
  const left = bytes - Buffer.byteLength(before) - Buffer.byteLength(after);
  const filling = typeof unit === 'string' ? unit.repeat(Math.floor(left / Buffer.byteLength(unit))) : unit(left);
  return Buffer.from(before + filling + after);
}

/** Base64 of an image whose pixels are followed by as much as is wanted. */
const imageOf = (bytes: number): string =>
  Buffer.concat([pngOf(64, 64), Buffer.alloc(Math.floor(bytes / 4) * 3 - pngOf(64, 64).length, 7)]).toString('base64');
const fileOf = (bytes: number): string => Buffer.alloc(Math.floor(bytes / 4) * 3, 'some words ').toString('base64');

const chat = (content: unknown, model = 'demo') => ({ model, messages: [{ role: 'user', content }] });
const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,@@' } };
const words = 'some words ';
const chinese = '中';

type Shape = readonly [
  name: string,
  path: string,
  count: number,
  megabytes: number,
  fields: object,
  unit: Parameters<typeof filled>[1],
];

const shapes: readonly Shape[] = [
  ['chat: text', '/v1/chat/completions', 16, 12, chat('@@'), words],
  ['chat: text with one Chinese character', '/v1/chat/completions', 16, 12, chat(`${chinese}@@`), words],
  ['chat: Chinese', '/v1/chat/completions', 6, 45, chat('@@'), chinese],
  ['chat: \\u escapes', '/v1/chat/completions', 6, 40, chat('@@'), '\\u4e2d'],
  ['chat: \\n escapes', '/v1/chat/completions', 6, 40, chat('@@'), '\\n'],
  ['chat: texts of 1 MB', '/v1/chat/completions', 200, 1, chat('@@'), words],
  ['chat: image', '/v1/chat/completions', 6, 45, chat([image], 'seeing'), imageOf],
  [
    'chat: image, Chinese',
    '/v1/chat/completions',
    6,
    45,
    chat([{ type: 'text', text: chinese }, image], 'seeing'),
    imageOf,
  ],
  ['chat: images of 2 MB', '/v1/chat/completions', 64, 2, chat([image], 'seeing'), imageOf],
  [
    'chat: file',
    '/v1/chat/completions',
    6,
    40,
    chat([{ type: 'file', file: { filename: 'a.txt', file_data: 'data:text/plain;base64,@@' } }]),
    fileOf,
  ],
  ['completions: text', '/v1/completions', 16, 12, { model: 'demo', prompt: '@@' }, words],
  ['messages: text', '/v1/messages', 16, 12, { ...chat('@@'), max_tokens: 5 }, words],
  [
    'messages: image',
    '/v1/messages',
    6,
    45,
    {
      ...chat([{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: '@@' } }], 'seeing'),
      max_tokens: 5,
    },
    imageOf,
  ],
  ['messages: count of a text', '/v1/messages/count_tokens', 16, 12, chat('@@'), words],
  ['responses: escapes', '/v1/responses', 6, 40, { model: 'demo', input: '@@' }, '\\u0041'],
  [
    'responses: image',
    '/v1/responses',
    6,
    45,
    { model: 'seeing', input: [{ role: 'user', content: [{ type: 'input_image', image_url: image.image_url.url }] }] },
    imageOf,
  ],
  ['embeddings: text', '/v1/embeddings', 16, 12, { model: 'vectors', input: ['@@'] }, words],
  ['rerank: document', '/v1/rerank', 16, 12, { model: 'ranks', query: 'a', documents: ['@@'] }, words],
];

/** With as much structure as a body may have, which is little text and many values. */
const structures: readonly Attack[] = [
  {
    name: 'chat: 80,000 messages',
    path: '/v1/chat/completions',
    count: 16,
    bytes: 2.7 * megabyte,
    body: () =>
      Buffer.from(
        `{"model":"demo","messages":[${'{"role":"user","content":"x"},'.repeat(79_999)}{"role":"user","content":"x"}]}`,
      ),
  },
  {
    name: 'chat: 160,000 empty values',
    path: '/v1/chat/completions',
    count: 24,
    bytes: 0.5 * megabyte,
    body: () =>
      Buffer.from(`{"model":"demo","messages":[{"role":"user","content":"x"}],"x":[${'{},'.repeat(160_000)}1]}`),
  },
  {
    name: 'completions: 490,000 token ids',
    path: '/v1/completions',
    count: 16,
    bytes: megabyte,
    body: () => Buffer.from(`{"model":"demo","prompt":[${'7,'.repeat(489_999)}7]}`),
  },
  {
    name: 'embeddings: 2,000 texts',
    path: '/v1/embeddings',
    count: 16,
    bytes: 12 * megabyte,
    body: (bytes) =>
      Buffer.from(
        JSON.stringify({
          model: 'vectors',
          input: Array.from({ length: 2_000 }, () => 'w'.repeat(bytes / 2_000 - 10)),
        }),
      ),
  },
  {
    // The answer is what is large.
    name: 'embeddings: 512 words',
    path: '/v1/embeddings',
    count: 32,
    bytes: 20_000,
    body: () => Buffer.from(`{"model":"vectors","input":[${'"word",'.repeat(511)}"word"]}`),
  },
];

const upload: Attack = {
  name: 'files: upload',
  path: '/v1/files',
  count: 16,
  bytes: 45 * megabyte,
  contentType: 'multipart/form-data; boundary=xx',
  body: (bytes) =>
    Buffer.concat([
      Buffer.from(
        '--xx\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--xx\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\ncontent-type: text/plain\r\n\r\n',
      ),
      Buffer.alloc(bytes, words),
      Buffer.from('\r\n--xx--\r\n'),
    ]),
};

export const attacks: readonly Attack[] = [
  ...shapes.map(([name, path, count, megabytes, fields, unit]): Attack => ({
    name,
    path,
    count,
    bytes: megabytes * megabyte,
    body: (bytes) => filled(fields, unit, bytes),
  })),
  ...structures,
  upload,
];

/** Statuses of what was sent: 0 where the connection ended without an answer. `chunked`: without a declared length. */
export function send(
  url: string,
  { path, contentType = 'application/json' }: Attack,
  body: Buffer,
  key: string,
  { chunked = false } = {},
): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve) => {
    const { hostname, port } = new URL(url);
    const socket = connect({ host: hostname, port: Number(port) });
    let text = '';
    const end = (): void => {
      socket.destroy();
      resolve({ status: Number(/^HTTP\/1\.1 (\d{3})/.exec(text)?.[1] ?? 0), text });
    };
    socket.setEncoding('latin1');
    socket.on('data', (piece: string) => {
      text += piece;
      // What is refused at its head is not sent to its end.
      if (text.includes('\r\n\r\n')) end();
    });
    socket.on('error', end).on('close', end);
    const framing = chunked ? 'transfer-encoding: chunked' : `content-length: ${body.length}`;
    socket.write(
      `POST ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-type: ${contentType}\r\n${framing}\r\n\r\n`,
    );
    if (!chunked) socket.write(body);
    else {
      for (let at = 0; at < body.length; at += 65_536) {
        const piece = body.subarray(at, at + 65_536);
        socket.write(`${piece.length.toString(16)}\r\n`);
        socket.write(piece);
        socket.write('\r\n');
      }
      socket.write('0\r\n\r\n');
    }
  });
}
