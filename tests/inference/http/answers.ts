import type { RawAnswer } from './raw.ts';

/**
 * The whole answers in what a connection has received, in order; what is not whole yet is left out. Throws when it is no
 * sequence of answers. For answers that have a length, as all have except streams and answers to HEAD.
 */
export function answersIn(received: string): readonly RawAnswer[] {
  const answers: RawAnswer[] = [];
  for (let from = 0; from < received.length;) {
    const end = received.indexOf('\r\n\r\n', from);
    if (end < 0) break;
    const [statusLine = '', ...lines] = received.slice(from, end).split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine)?.[1]);
    if (Number.isNaN(status)) throw new Error(`no answer at ${from}: ${JSON.stringify(received)}`);
    const headers: Record<string, string> = {};
    for (const line of lines) {
      const colon = line.indexOf(':');
      headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
    }
    const length = status === 100 ? 0 : Number(headers['content-length']);
    if (Number.isNaN(length)) throw new Error(`an answer without a length: ${JSON.stringify(received)}`);
    const bodyFrom = end + 4;
    if (received.length < bodyFrom + length) break;
    from = bodyFrom + length;
    const body = Buffer.from(received.slice(bodyFrom, from), 'latin1').toString('utf8');
    answers.push({ status, headers, body, json: () => JSON.parse(body) as Record<string, unknown> });
  }
  return answers;
}
