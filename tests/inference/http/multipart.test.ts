/** Hostile bodies of uploads (reliability §3.4, "Files/multipart"): each is refused in the envelope or stored cleanly, and the service goes on. */
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { TestService, scriptedModel, until } from '../../support/service.ts';
import { assertEnvelope } from './envelope.ts';
import {
  anthropicVersion,
  askFiles,
  bodyOf,
  boundary,
  end,
  fileNames,
  multipartType,
  part,
  sendUpload,
  upload,
  uploadBody,
  uploadRequest,
} from './file-requests.ts';
import { RawConnection, requestBytes } from './raw.ts';

const service = new TestService({
  config: scriptedModel('- say: [ { text: "hello" } ]'),
  limits: '  body_bytes_max: 1000000\n  body_bytes_per_second_min: 4096',
});
/** With the sizes of the defaults. */
const large = new TestService({ config: scriptedModel('- say: [ { text: "hello" } ]') });
before(() => Promise.all([service.start(), large.start()]));
after(() => Promise.all([service.dispose(), large.dispose()]));

/** Everything in the folder of the files. */
const stored = ({ folder }: TestService): readonly string[] => {
  try {
    return readdirSync(join(folder, 'data', 'files'), { recursive: true, encoding: 'utf8' }).filter((name) =>
      /[0-9a-f]{32}/.test(name),
    );
  } catch {
    return [];
  }
};

const file = part('file', 'x', 'x.txt');
const purpose = part('purpose', 'user_data');
const whole = bodyOf(file, purpose);
const nested = whole.toString('latin1').replaceAll(boundary, 'inner');

describe('bodies that are not whole, or not multipart', () => {
  const type = (value: string) => [['Content-Type', value] as const];
  const rows: readonly (readonly [string, Uint8Array, readonly (readonly [string, string])[], string | undefined])[] = [
    ['no boundary', whole, type('multipart/form-data'), undefined],
    ['an empty boundary', whole, type('multipart/form-data; boundary='), undefined],
    ['a boundary of 5 KB', whole, type(`multipart/form-data; boundary=${'b'.repeat(5_000)}`), undefined],
    ['another boundary', whole, type('multipart/form-data; boundary=other'), undefined],
    ['nothing', Buffer.alloc(0), [], undefined],
    ['the end alone', end, [], 'file'],
    ['no end', Buffer.concat([file, purpose]), [], undefined],
    ['no end, inside of the file', file.subarray(0, -3), [], undefined],
    ['no end, inside of a header', file.subarray(0, 60), [], undefined],
    ['JSON', Buffer.from('{"file":"x"}'), [], undefined],
    ['10,000 parts', bodyOf(...new Array<Buffer>(10_000).fill(part('a', 'b'))), [], undefined],
    ['17 parts', bodyOf(file, ...new Array<Buffer>(16).fill(part('a', 'b'))), [], undefined],
    ['a part without a name', bodyOf(Buffer.from(`--${boundary}\r\n\r\nx\r\n`), purpose), [], 'file'],
    ['a file under another field', bodyOf(part('upload', 'x', 'x.txt'), purpose), [], 'file'],
    [
      'multipart inside of multipart, whose file is not ours',
      bodyOf(part('files', nested, undefined, 'Content-Type: multipart/mixed; boundary=inner\r\n'), purpose),
      [],
      'file',
    ],
  ];
  for (const [name, body, headers, param] of rows) {
    test(name, async () => {
      const answer = await sendUpload(service, body, headers);
      assertEnvelope(answer, 'schema_validation_failed', param === undefined ? {} : { param });
      await until(() => stored(service).length === 0, 60_000);
    });
  }

  test('another kind of multipart', async () => {
    assertEnvelope(await sendUpload(service, whole, type(`multipart/mixed; boundary=${boundary}`)), 'http_415');
  });

  test('cut at every byte: refused each time, and nothing is left', async () => {
    const bytes = bodyOf(part('file', 'some text', 'x.txt', 'Content-Type: text/plain\r\n'), purpose);
    // What follows the last boundary is no part of the body.
    const lastNeeded = bytes.length - 2;
    const lengths = Array.from({ length: lastNeeded }, (_, length) => length);
    for (let at = 0; at < lengths.length; at += 8) {
      const answers = await Promise.all(
        lengths.slice(at, at + 8).map((length) => sendUpload(service, bytes.subarray(0, length))),
      );
      for (const answer of answers) assertEnvelope(answer, 'schema_validation_failed');
    }
    await until(() => stored(service).length === 0, 60_000);
    assert.deepEqual(await fileNames(service), []);
  });
});

describe('bodies that are odd and whole', () => {
  const nameRows: readonly (readonly [string, string])[] = [
    ['../../etc/passwd', 'passwd'],
    ['..\\..\\boot.ini', 'boot.ini'],
    ['/', 'unnamed.txt'],
    ['..', 'unnamed.txt'],
    ['', 'unnamed.txt'],
    ['CON', 'CON'],
    ['a\u202egpj.exe', 'agpj.exe'],
    ['a\u0000b\u0007.txt', 'ab.txt'],
    ['üñí 文.txt', 'üñí 文.txt'],
    [`${'n'.repeat(3_000)}.pdf`, `${'n'.repeat(251)}.pdf`],
    ['<script>.html', '<script>.html'],
  ];
  for (const [name, shown] of nameRows) {
    test(`the name ${JSON.stringify(name.slice(0, 30))}`, async () => {
      const id = await upload(service, 'hello', name);
      assert.equal((await askFiles(service, `/${id}`)).json()['filename'], shown);
      const content = await askFiles(service, `/${id}/content`);
      assert.equal(content.body, 'hello');
      assert.match(
        content.headers['content-disposition'] ?? '',
        /^attachment; filename="[\x20-\x7e]*"; filename\*=UTF-8''[\x21-\x7e]*$/,
      );
      assert.equal(content.headers['content-type']?.startsWith('text/plain'), true);
      await askFiles(service, `/${id}`, [], 'DELETE');
    });
  }

  test('no header of an answer comes from the name of a file', async () => {
    const sent = part('file', 'x', 'a.txt');
    const broken = Buffer.from(sent.toString('latin1').replace('a.txt', 'a\r\nset-cookie: b'), 'latin1');
    const answer = await sendUpload(service, bodyOf(broken, purpose));
    if (answer.status === 200) {
      const content = await askFiles(service, `/${String(answer.json()['id'])}/content`);
      assert.equal(content.headers['set-cookie'], undefined);
    } else assertEnvelope(answer, 'schema_validation_failed', { param: 'file' });
  });

  test('a boundary in the data, a preamble, an epilogue, 64 KB of headers, `__proto__`', async () => {
    const data = `x\r\n--${boundary.slice(0, -1)}\r\n--\r\n`;
    const answer = await sendUpload(
      service,
      Buffer.concat([
        Buffer.from('a preamble\r\n'),
        part('__proto__', 'polluted'),
        part('constructor', 'x'),
        part('file', data, 'x.txt', `X-Long: ${'h'.repeat(5_000)}\r\n`),
        purpose,
        end,
        Buffer.from('an epilogue'),
      ]),
    );
    assert.equal(answer.status, 200, answer.body);
    const content = await askFiles(service, `/${String(answer.json()['id'])}/content`);
    assert.equal(content.body, data);
    const over = await sendUpload(
      service,
      bodyOf(part('file', 'x', 'x.txt', `X-Long: ${'h'.repeat(65_536)}\r\n`), purpose),
    );
    assert.ok(over.status === 200 || over.status === 422 || over.status === 413, over.body);
  });

  test('the type is what the bytes say, not what the client says', async () => {
    const rows: readonly (readonly [string, Uint8Array, string, string])[] = [
      ['image/png', Buffer.from('<script>alert(1)</script>'), 'x.png', 'text/plain'],
      ['text/html', Buffer.from('<html>'), 'x.html', 'text/plain'],
      ['text/plain', Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), 'x.txt', 'image/png'],
      ['text/plain', Buffer.from('%PDF-1.7'), 'x.txt', 'application/pdf'],
      ['application/json', Buffer.from([0xff, 0xfe, 0x7b]), 'x.json', 'application/octet-stream'],
      ['text/csv', Buffer.from('PK\x03\x04\x00', 'latin1'), 'x.csv', 'application/octet-stream'],
    ];
    for (const [said, bytes, name, is] of rows) {
      const body = bodyOf(part('file', bytes, name, `Content-Type: ${said}\r\n`));
      assert.equal((await sendUpload(service, body, [anthropicVersion])).json()['mime_type'], is, name);
    }
  });
});

describe('sizes', () => {
  test('50 MB exactly is a file; one byte more is not, declared or not', async () => {
    const bytes = Buffer.alloc(52_428_800, 'a');
    const id = await upload(large, bytes, 'large.txt');
    assert.equal((await askFiles(large, `/${id}`)).json()['bytes'], bytes.length);
    const more = uploadBody(Buffer.concat([bytes, Buffer.from('a')]), 'larger.txt');
    assertEnvelope(await sendUpload(large, more), 'request_body_too_large');
    const connection = await RawConnection.open(large.url);
    const chunk = Buffer.concat([Buffer.from('10000\r\n'), Buffer.alloc(65_536, 'a'), Buffer.from('\r\n')]);
    const head = `POST /v1/files HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${large.key}\r\nContent-Type: ${multipartType}\r\nTransfer-Encoding: chunked\r\n\r\n`;
    const first = part('file', '', 'chunked.txt').subarray(0, -2);
    connection.write(head);
    connection.write(Buffer.concat([Buffer.from(`${first.length.toString(16)}\r\n`), first, Buffer.from('\r\n')]));
    for (let count = 0; count < 801; count++) connection.write(chunk);
    assertEnvelope(await connection.answer(), 'request_body_too_large');
    connection.close();
    await until(() => stored(large).length === 1, 60_000);
  });

  test('a declared length beyond it is refused before a byte is read', async () => {
    const connection = await RawConnection.open(service.url);
    connection.write(
      requestBytes(service.url, uploadRequest(service, Buffer.alloc(0), [['Content-Length', '999000000']])),
    );
    assertEnvelope(await connection.answer(), 'request_body_too_large');
    connection.close();
  });

  test('fields beside the file are bounded too', async () => {
    const padding = Array.from({ length: 10 }, () => part('ignored', 'x'.repeat(200_000)));
    assertEnvelope(await sendUpload(service, bodyOf(file, ...padding, purpose)), 'request_body_too_large');
  });

  test('constant memory: uploads and downloads of 50 MB, eight at the same time', async () => {
    const bytes = Buffer.alloc(52_428_800, 'a');
    const rss = (): number =>
      Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${large.pid}/status`, 'latin1'))?.[1]) * 1024;
    if (process.platform !== 'linux') return;
    // What the first of them makes the process grow by is not the question.
    await upload(large, bytes, 'first.txt');
    const beforeBytes = rss();
    let peakBytes = 0;
    const watch = setInterval(() => (peakBytes = Math.max(peakBytes, rss())), 20);
    try {
      const ids = await Promise.all(Array.from({ length: 8 }, (_, index) => upload(large, bytes, `${index}.txt`)));
      for (const id of ids) {
        const answer = await fetch(`${large.url}/v1/files/${id}/content`, {
          headers: { authorization: `Bearer ${large.key}` },
        });
        assert.equal((await answer.arrayBuffer()).byteLength, bytes.length);
      }
    } finally {
      clearInterval(watch);
    }
    // Eight whole files would be 419 MB, copies not counted.
    assert.ok(peakBytes - beforeBytes < 200_000_000, `${peakBytes - beforeBytes} bytes more`);
  });
});

describe('clients that are slow or leave', () => {
  test('a drip is ended, and nothing is left', async () => {
    const connection = await RawConnection.open(service.url);
    const request = uploadRequest(service, Buffer.alloc(0), [['Content-Length', '500000']]);
    connection.write(requestBytes(service.url, request));
    connection.write(part('file', 'x'.repeat(1_000), 'slow.txt'));
    const drip = setInterval(() => connection.write('x'), 500);
    try {
      await until(() => connection.received.includes('\r\n\r\n'), 120_000);
      assertEnvelope(await connection.answer(), 'http_408');
    } finally {
      clearInterval(drip);
      connection.close();
    }
    await until(() => stored(service).every((name) => !name.endsWith('.part')), 60_000);
    assert.ok(!(await fileNames(service)).includes('slow.txt'));
  });

  test('left in mid-file, by FIN and by RST: nothing is left', async () => {
    const others = stored(service).length;
    for (const leave of ['end', 'resetAndDestroy'] as const) {
      const connection = await RawConnection.open(service.url);
      const request = uploadRequest(service, Buffer.alloc(0), [['Content-Length', '500000']]);
      connection.write(requestBytes(service.url, request));
      connection.write(part('file', 'x'.repeat(200_000), 'left.txt'));
      await until(() => stored(service).length === others + 1, 60_000);
      connection.socket[leave]();
      await until(() => stored(service).length === others, 60_000);
      connection.close();
    }
    assert.ok(!(await fileNames(service)).includes('left.txt'));
  });

  test('a key that is revoked in mid-upload ends it', async () => {
    const others = stored(service).length;
    const made = await service.command('keys', 'create', '--name', 'short', '--user', 'u', '--json');
    const { id, key } = JSON.parse(made.stdout) as { id: string; key: string };
    const connection = await RawConnection.open(service.url);
    const headers = [
      ['Authorization', `Bearer ${key}`],
      ['Content-Length', '500000'],
    ] as const;
    connection.write(requestBytes(service.url, uploadRequest(service, Buffer.alloc(0), headers)));
    connection.write(part('file', 'x'.repeat(200_000), 'revoked.txt'));
    await until(() => stored(service).length === others + 1, 60_000);
    assert.equal((await service.command('keys', 'revoke', id)).code, 0);
    assertEnvelope(await connection.answer(), 'invalid_api_key');
    connection.close();
    await until(() => stored(service).length === others, 60_000);
  });

  test('a connection serves further requests after a refused upload', async () => {
    const connection = await RawConnection.open(service.url);
    connection.write(requestBytes(service.url, uploadRequest(service, bodyOf(file, file, purpose))));
    assertEnvelope(await connection.answer(), 'schema_validation_failed', { param: 'file' });
    connection.write(requestBytes(service.url, uploadRequest(service, whole)));
    assert.equal((await connection.answer()).status, 200);
    connection.close();
  });
});
