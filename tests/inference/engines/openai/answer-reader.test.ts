import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { AnswerReader, HttpFault } from '../../../../src/inference/engines/openai/answer-reader.ts';

interface Read {
  readonly status: number | undefined;
  readonly body: string;
  readonly isOver: boolean;
  readonly isReusable: boolean;
  /** Bytes behind the answer. */
  readonly rest: string;
  readonly fault: boolean;
}

/** What a reader makes of bytes that come in these pieces, with the end of the connection after them or not. */
function read(pieces: readonly Buffer[], isClosed = false): Read {
  let status: number | undefined;
  let body = '';
  let rest = '';
  let fault = false;
  const reader = new AnswerReader({
    onHead: (head) => {
      assert.equal(status, undefined, 'one final head');
      ({ status } = head);
    },
    onBody: (bytes, from, to) => {
      assert.ok(from < to && to <= bytes.length);
      body += bytes.toString('latin1', from, to);
    },
  });
  try {
    for (const piece of pieces) {
      const taken = reader.push(piece);
      assert.ok(taken === piece.length || reader.isOver);
      rest += piece.toString('latin1', taken);
    }
    if (isClosed) reader.end();
  } catch (error) {
    assert.ok(error instanceof HttpFault, String(error));
    fault = true;
  }
  return { status, body, isOver: reader.isOver, isReusable: reader.isReusable, rest, fault };
}

const chunked = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';
const ok = (head: string, rest = ''): string => `HTTP/1.1 200 OK\r\n${head}\r\n${rest}`;

/** Answers, what is read of them, and whether the connection can go on. */
const answers: readonly (readonly [name: string, bytes: string, body: string, isReusable: boolean])[] = [
  ['a length', ok('Content-Length: 5\r\n', 'Hello'), 'Hello', true],
  ['a length with blanks around it', ok('content-length: \t5 \r\n', 'Hello'), 'Hello', true],
  ['no bytes', ok('content-length: 0\r\n'), '', true],
  ['chunks', `${chunked}5\r\nHello\r\n0006\r\n world\r\n0\r\n\r\n`, 'Hello world', true],
  ['chunks of large digits', `${chunked}A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n`, '01234567890123456789', true],
  ['chunks with line ends in them', `${chunked}6\r\n\r\n0\r\n\r\r\n0\r\n\r\n`, '\r\n0\r\n\r', true],
  ['chunks with extensions', `${chunked}5;a=b;c="d e"\r\nHello\r\n0 ; x\r\n\r\n`, 'Hello', true],
  ['chunks with a trailer', `${chunked}5\r\nHello\r\n0\r\nx-sum: 1\r\ny: 2\r\n\r\n`, 'Hello', true],
  ['a coding in capitals', ok('Transfer-Encoding: Chunked\r\n', '1\r\nx\r\n0\r\n\r\n'), 'x', true],
  ['no content', 'HTTP/1.1 204 No Content\r\n\r\n', '', true],
  [
    'heads before the head',
    `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\nlink: <x>\r\n\r\n${ok('content-length: 1\r\n', 'x')}`,
    'x',
    true,
  ],
  ['no reason', 'HTTP/1.1 200\r\ncontent-length: 1\r\n\r\nx', 'x', true],
  ['bytes of Latin-1 in a field', ok('x-name: caf\xe9\r\ncontent-length: 1\r\n', 'x'), 'x', true],
  ['a closing', ok('connection: close\r\ncontent-length: 1\r\n', 'x'), 'x', false],
  ['a closing among other options', ok('connection: foo, Close\r\ncontent-length: 1\r\n', 'x'), 'x', false],
  ['HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx', 'x', false],
  ['HTTP/1.0 that stays', 'HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 1\r\n\r\nx', 'x', true],
];

const faults: readonly (readonly [name: string, bytes: string])[] = [
  ['another protocol', 'SSH-2.0-OpenSSH'],
  ['another version', 'HTTP/2.0 200 OK\r\n\r\n'],
  ['an empty line before the head', `\r\n${ok('content-length: 1\r\n', 'x')}`],
  ['a status of two digits', 'HTTP/1.1 20 OK\r\n\r\n'],
  ['a status below 100', 'HTTP/1.1 099 OK\r\n\r\n'],
  ['another protocol instead of an answer', 'HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n'],
  ['a line that goes on (obs-fold)', ok('x: a\r\n b\r\ncontent-length: 1\r\n', 'x')],
  ['a blank before the colon', ok('content-length : 1\r\n', 'x')],
  ['line feeds alone', 'HTTP/1.1 200 OK\ncontent-length: 1\n\nx'],
  ['a bare line feed', ok('x: a\ncontent-length: 1\r\n', 'x')],
  ['a bare carriage return', ok('x: a\rb\r\ncontent-length: 1\r\n', 'x')],
  ['a NUL', ok('x: \0\r\ncontent-length: 1\r\n', 'x')],
  ['a line without a name', ok(': 1\r\ncontent-length: 1\r\n', 'x')],
  ['a length and a coding', ok('content-length: 1\r\ntransfer-encoding: chunked\r\n', '1\r\nx\r\n0\r\n\r\n')],
  ['two lengths', ok('content-length: 1\r\ncontent-length: 2\r\n', 'xy')],
  ['the same length twice', ok('content-length: 1\r\ncontent-length: 1\r\n', 'x')],
  ['a list of lengths', ok('content-length: 1, 1\r\n', 'x')],
  ['a negative length', ok('content-length: -1\r\n', 'x')],
  ['a length with a sign', ok('content-length: +1\r\n', 'x')],
  ['a length of sixteen digits', ok('content-length: 1000000000000000\r\n', 'x')],
  ['two codings', ok('transfer-encoding: gzip, chunked\r\n', '1\r\nx\r\n0\r\n\r\n')],
  ['an unknown coding', ok('transfer-encoding: chunked1\r\n', '1\r\nx\r\n0\r\n\r\n')],
  ['a coding in HTTP/1.0', 'HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n'],
  ['a chunk without a size', `${chunked}\r\nx\r\n0\r\n\r\n`],
  ['a size that is no number', `${chunked}0x1\r\nx\r\n0\r\n\r\n`],
  ['a negative size', `${chunked}-1\r\nx\r\n0\r\n\r\n`],
  ['a size of nine digits', `${chunked}000000001\r\nx\r\n0\r\n\r\n`],
  ['a size that ends in a bare line feed', `${chunked}1\nx\r\n0\r\n\r\n`],
  ['a chunk longer than its size', `${chunked}1\r\nxy\r\n0\r\n\r\n`],
  ['a chunk that ends in a bare line feed', `${chunked}1\r\nx\n0\r\n\r\n`],
  ['an extension with a bare line feed', `${chunked}1;a\nx\r\n0\r\n\r\n`],
  ['an endless extension', `${chunked}1;${'a'.repeat(5_000)}\r\nx\r\n0\r\n\r\n`],
  ['an invalid trailer', `${chunked}1\r\nx\r\n0\r\nnonsense\r\n\r\n`],
  ['an endless trailer', `${chunked}1\r\nx\r\n0\r\nx: ${'a'.repeat(20_000)}`],
  ['an endless head', ok(`x: ${'a'.repeat(20_000)}`)],
];

describe('an answer of HTTP/1.1', () => {
  for (const [name, bytes, body, isReusable] of answers) {
    it(`with ${name}`, () => {
      const wanted: Read = {
        status: name === 'no content' ? 204 : 200,
        body,
        isOver: true,
        isReusable,
        rest: '',
        fault: false,
      };
      assert.deepEqual(read([Buffer.from(bytes, 'latin1')]), wanted);
    });
  }

  it('without a length ends with its connection, and only then', () => {
    const bytes = Buffer.from('HTTP/1.1 200 OK\r\n\r\nHello');
    assert.deepEqual([read([bytes]).isOver, read([bytes], true).isOver], [false, true]);
    assert.deepEqual([read([bytes], true).body, read([bytes], true).isReusable], ['Hello', false]);
  });

  // reliability U8: where the reads are cut says nothing.
  it('is the same for every cut, byte by byte, and in any pieces', () => {
    for (const [name, text] of [...answers, ...faults]) {
      const bytes = Buffer.from(text, 'latin1');
      const wanted = read([bytes]);
      for (let cut = 0; cut <= Math.min(bytes.length, 200); cut++) {
        assert.deepEqual(read([bytes.subarray(0, cut), bytes.subarray(cut)]), wanted, `${name}, cut at ${cut}`);
      }
      if (bytes.length < 1_000) assert.deepEqual(read(Array.from(bytes, (byte) => Buffer.from([byte]))), wanted, name);
    }
  });

  it('returns every body in its framing, and what follows it', () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ minLength: 1, maxLength: 40 }), { maxLength: 6 }),
        fc.array(fc.nat(400), { maxLength: 6 }),
        fc.boolean(),
        fc.constantFrom('', 'HTTP/1.1 200 OK\r\n'),
        (parts, cuts, isChunked, behind) => {
          const body = Buffer.concat(parts);
          const framed = isChunked
            ? [chunked, ...parts.flatMap((part) => [`${part.length.toString(16)}\r\n`, part, '\r\n']), '0\r\n\r\n']
            : [ok(`content-length: ${body.length}\r\n`), body];
          const bytes = Buffer.concat([...framed, behind].map((part) => Buffer.from(part as string)));
          const places = [0, ...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length];
          const pieces = places.slice(1).map((to, i) => bytes.subarray(places[i], to));
          const got = read(pieces);
          assert.equal(got.body, body.toString('latin1'));
          assert.deepEqual([got.isOver, got.rest, got.fault], [true, behind, false]);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('that is cut short is no answer', () => {
    for (const [name, text] of answers) {
      const bytes = Buffer.from(text, 'latin1');
      for (let cut = 0; cut < bytes.length; cut++) {
        const got = read([bytes.subarray(0, cut)], true);
        assert.deepEqual([got.isOver, got.fault], [false, true], `${name}, ${cut} bytes`);
      }
    }
  });
});

describe('an answer whose framing is in doubt is refused (reliability U14)', () => {
  for (const [name, bytes] of faults) {
    it(`for ${name}`, () => {
      const { fault, isOver } = read([Buffer.from(bytes, 'latin1')]);
      assert.deepEqual([fault, isOver], [true, false]);
    });
  }
});
