/** Files in a bucket of a real S3-compatible server: the promises of `FileBytes`, then the whole service. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';

import { BucketBytes } from '../../../src/inference/files/bucket-bytes.ts';
import { BytesError } from '../../../src/inference/files/file-bytes.ts';
import { newId, promisesOf } from '../../inference/files/bytes-contract.ts';
import { assertEnvelope } from '../../inference/http/envelope.ts';
import { askFiles, part, sendUpload, upload, uploadBody, uploadRequest } from '../../inference/http/file-requests.ts';
import { RawConnection, requestBytes } from '../../inference/http/raw.ts';
import { TestService, scriptedModel, until } from '../../support/service.ts';
import { S3Server } from './s3-server.ts';

let server: S3Server;
before(async () => {
  server = await S3Server.start();
});
after(() => server.dispose());

const bucketBytes = (changes: { readonly secretAccessKey?: string; readonly name?: string } = {}): BucketBytes =>
  new BucketBytes({
    name: server.bucket,
    endpoint: server.url,
    region: 'us-east-1',
    prefix: 'tests/',
    pathStyle: true,
    accessKeyId: server.accessKeyId,
    secretAccessKey: server.secretAccessKey,
    sessionToken: undefined,
    ...changes,
  });

describe('the promises of FileBytes', () => {
  let shared: BucketBytes | undefined;
  promisesOf(
    () => (shared ??= bucketBytes()),
    async (id) => {
      const { objects, uploads } = await server.keys();
      return [...objects, ...uploads].filter((key) => key === `tests/${id}`).length;
    },
  );
  after(() => shared?.close());
});

test('a wrong secret and a missing bucket are failures in words, without either', async () => {
  const source = async function* (): AsyncGenerator<Uint8Array> {
    yield await Promise.resolve(Buffer.from('x'));
  };
  for (const bytes of [bucketBytes({ secretAccessKey: 'wrong secret' }), bucketBytes({ name: 'no-such-bucket' })]) {
    await assert.rejects(
      bytes.write(newId(), source(), new AbortController().signal),
      (error) => error instanceof BytesError && error.code === 'failed' && !error.message.includes('wrong secret'),
    );
    await bytes.close();
  }
});

describe('the service', () => {
  let service: TestService;
  before(async () => {
    service = new TestService({
      config: `${scriptedModel('- say: [ { text: "hello" } ]')}
files: { bucket: ${server.bucket}, endpoint: "${server.url}" }`,
      environment: { AWS_ACCESS_KEY_ID: server.accessKeyId, AWS_SECRET_ACCESS_KEY: server.secretAccessKey },
    });
    await service.start();
  });
  after(() => service.dispose());
  const keys = async () => {
    const { objects, uploads } = await server.keys();
    const ours = (key: string) => key.startsWith('tokenhouse/');
    return { objects: objects.filter(ours), uploads: uploads.filter(ours) };
  };

  test('upload, use, read and delete; objects are named by our ids only', async () => {
    const large = randomBytes(12_000_000);
    const id = await upload(service, large, 'large.bin');
    const text = await upload(service, 'said in a file', 'a.txt');
    const names = [id, text].map((each) => `tokenhouse/${each.replace('file-', '')}`).toSorted();
    assert.deepEqual((await keys()).objects.toSorted(), names);
    const answer = await fetch(`${service.url}/v1/files/${id}/content`, {
      headers: { authorization: `Bearer ${service.key}` },
    });
    assert.ok(Buffer.from(await answer.arrayBuffer()).equals(large));
    const content = [{ type: 'file', file: { file_id: text } }];
    const chat = await service.chat({ model: 'demo', messages: [{ role: 'user', content }] });
    assert.equal(chat.status, 200, await chat.text());
    for (const each of [id, text]) assert.equal((await askFiles(service, `/${each}`, [], 'DELETE')).status, 200);
    assert.deepEqual(await keys(), { objects: [], uploads: [] });
  });

  test('a client that leaves in mid-upload leaves nothing', async () => {
    const connection = await RawConnection.open(service.url);
    const request = uploadRequest(service, Buffer.alloc(0), [['Content-Length', '40000000']]);
    connection.write(requestBytes(service.url, request));
    connection.write(part('file', Buffer.alloc(11_000_000, 'a'), 'left.bin'));
    await until(async () => (await keys()).uploads.length === 1, 60_000);
    connection.socket.resetAndDestroy();
    await until(async () => (await keys()).uploads.length === 0, 60_000);
    connection.close();
  });

  test('killed in mid-upload: the next start takes away what is left', async () => {
    const connection = await RawConnection.open(service.url);
    const request = uploadRequest(service, Buffer.alloc(0), [['Content-Length', '40000000']]);
    connection.write(requestBytes(service.url, request));
    connection.write(part('file', Buffer.alloc(11_000_000, 'a'), 'killed.bin'));
    await until(async () => (await keys()).uploads.length === 1, 60_000);
    await service.stop('SIGKILL');
    connection.close();
    assert.equal((await keys()).uploads.length, 1);
    await service.start();
    await until(async () => (await keys()).uploads.length === 0, 60_000);
    assert.deepEqual((await askFiles(service)).json()['data'], []);
  });

  test('the bucket is away: 500 with Retry-After, chat goes on; when it is back, all goes on and nothing is left', async () => {
    const id = await upload(service, 'x', 'x.txt');
    await server.stop();
    const failed = await sendUpload(service, uploadBody('y', 'y.txt'));
    assertEnvelope(failed, 'internal_error');
    assert.equal(failed.headers['retry-after'], '1');
    assertEnvelope(await askFiles(service, `/${id}/content`), 'internal_error');
    const body = { model: 'demo', messages: [{ role: 'user', content: 'hi' }] };
    assert.equal((await service.chat(body)).status, 200);
    // Deleted for the client; its bytes go when the bucket is back.
    assert.equal((await askFiles(service, `/${id}`, [], 'DELETE')).status, 200);
    server.run();
    await server.answers();
    await until(async () => (await keys()).objects.length === 0, 180_000);
    await upload(service, 'z', 'z.txt');
  });
});
