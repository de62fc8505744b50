import { request } from 'node:http';
import type { IncomingHttpHeaders, Agent } from 'node:http';

/** An answer as far as it came. */
export interface Answer {
  /** 0: not even a status line. */
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** The body came to its end as HTTP says it: all of its length, or the last chunk. */
  readonly isWhole: boolean;
}

export interface Ask {
  readonly url: string;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  /** `false`: a connection of its own. */
  readonly agent: Agent | false;
  /** Without an answer's end until then it rejects: nothing may hang. */
  readonly timeoutMs: number;
}

/** One request; a connection that breaks is an answer that is not whole. */
export function ask({ url, method, path, headers, body, agent, timeoutMs }: Ask): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let status = 0;
    let answerHeaders: IncomingHttpHeaders = {};
    const sent = request(new URL(path, url), { method, headers, agent });
    const timer = setTimeout(() => {
      reject(new Error(`${method} ${path} hangs: ${timeoutMs} ms, status ${status}, ${chunks.length} reads`));
      sent.destroy();
    }, timeoutMs);
    const finish = (isWhole: boolean): void => {
      clearTimeout(timer);
      resolve({ status, headers: answerHeaders, body: Buffer.concat(chunks).toString(), isWhole });
    };
    sent.on('response', (response) => {
      status = response.statusCode ?? 0;
      answerHeaders = response.headers;
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('close', () => finish(response.complete));
      response.on('error', () => {});
    });
    sent.on('error', () => finish(false));
    sent.end(body);
  });
}
