import http from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

/** One request as the server saw it. */
export interface SeenRequest {
  readonly path: string;
  readonly range: string | undefined;
  readonly ifRange: string | undefined;
  readonly authorization: string | undefined;
}

export interface FileServer {
  readonly url: string;
  readonly seen: SeenRequest[];
  /** Bytes of bodies that were handed to sockets. */
  sentBytes: number;
  /** What is served; may be replaced at any time. */
  answer: Answer;
  close(): Promise<void>;
}

export type Answer = (request: http.IncomingMessage, response: http.ServerResponse, server: FileServer) => void;

/** A real HTTP server on a free port of this computer. */
export async function fileServer(answer: Answer): Promise<FileServer> {
  const sockets = new Set<Socket>();
  const listener = http.createServer((request, response) => {
    server.seen.push({
      path: request.url ?? '',
      range: request.headers.range,
      ifRange: request.headers['if-range'] as string | undefined,
      authorization: request.headers.authorization,
    });
    server.answer(request, response, server);
  });
  listener.on('connection', (socket) => sockets.add(socket).size && socket.on('close', () => sockets.delete(socket)));
  await new Promise<void>((resolve) => listener.listen(0, '127.0.0.1', resolve));
  const server: FileServer = {
    url: `http://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    seen: [],
    sentBytes: 0,
    answer,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
  return server;
}

export interface ServedFile {
  readonly body: Buffer;
  /** `null`: no validator at all. */
  readonly etag?: string | null;
  /** false: a server that knows nothing of ranges. */
  readonly ranges?: boolean;
  /** The socket is cut after so many bytes of this answer. */
  readonly cutAfter?: number | undefined;
  /** Nothing more comes after so many bytes of this answer, and the socket stays open. */
  readonly hangAfter?: number | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  /** Called once the first bytes are on their way. */
  readonly onSent?: () => void;
}

/** Answers as an ordinary file server does, with a fault on demand. */
export function sendFile(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  server: FileServer,
  file: ServedFile,
): void {
  const { body, etag = '"v1"', ranges = true } = file;
  const [, from] = /^bytes=(\d+)-$/.exec(request.headers.range ?? '') ?? [];
  const ifRange = request.headers['if-range'];
  const partial = ranges && from !== undefined && (ifRange === undefined || ifRange === etag);
  const start = partial ? Number(from) : 0;
  if (partial && start >= body.length) {
    response.writeHead(416, { 'content-range': `bytes */${body.length}` }).end();
    return;
  }
  const whole = body.subarray(start);
  response.writeHead(partial ? 206 : 200, {
    'content-length': whole.length,
    ...(etag === null ? {} : { etag }),
    ...(partial ? { 'content-range': `bytes ${start}-${body.length - 1}/${body.length}` } : {}),
    ...file.headers,
  });
  const end = Math.min(file.cutAfter ?? whole.length, file.hangAfter ?? whole.length);
  server.sentBytes += end;
  const last = whole.subarray(0, end);
  if (file.cutAfter !== undefined) response.write(last, () => response.destroy());
  else if (file.hangAfter !== undefined) response.write(last);
  else response.end(last);
  file.onSent?.();
}
