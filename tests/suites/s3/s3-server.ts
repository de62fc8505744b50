import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { CreateBucketCommand, ListMultipartUploadsCommand, ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3';

import { freePort } from '../../support/free-port.ts';
import { until } from '../../support/service.ts';

/** A real S3-compatible server with one bucket, in a folder of its own. */
export class S3Server {
  readonly accessKeyId = 'tokenhouse-tests';
  readonly secretAccessKey = 'a secret of the tests';
  readonly bucket = 'files';
  readonly folder = mkdtempSync(join(tmpdir(), 'tokenhouse-s3-'));
  readonly client: S3Client;
  readonly url: string;
  readonly #port: number;
  #process: ChildProcess | undefined;

  private constructor(port: number) {
    this.#port = port;
    this.url = `http://127.0.0.1:${port}`;
    const { accessKeyId, secretAccessKey } = this;
    this.client = new S3Client({
      endpoint: this.url,
      region: 'us-east-1',
      forcePathStyle: true,
      credentials: { accessKeyId, secretAccessKey },
    });
    mkdirSync(join(this.folder, 'objects'));
  }

  /** What the setup of the suite has found. Throws when there is none. */
  static async start(): Promise<S3Server> {
    const server = new S3Server(await freePort());
    server.run();
    await server.answers();
    await server.client.send(new CreateBucketCommand({ Bucket: server.bucket }));
    return server;
  }

  run(): void {
    const program = process.env['VERSITYGW'];
    if (program === undefined) throw new Error('these tests need versitygw: run them with npm run suite s3');
    const { accessKeyId, secretAccessKey } = this;
    const options = ['--access', accessKeyId, '--secret', secretAccessKey, '--port', `127.0.0.1:${this.#port}`];
    this.#process = spawn(program, [...options, '--quiet', 'posix', join(this.folder, 'objects')], { stdio: 'ignore' });
  }

  /** Any answer will do. */
  answers(): Promise<void> {
    return until(
      () =>
        fetch(this.url).then(
          () => true,
          () => false,
        ),
      60_000,
    );
  }

  /** Keys of the objects, and of uploads that nobody has completed. */
  async keys(): Promise<{ readonly objects: readonly string[]; readonly uploads: readonly string[] }> {
    const { Contents = [] } = await this.client.send(new ListObjectsV2Command({ Bucket: this.bucket }));
    const { Uploads = [] } = await this.client.send(new ListMultipartUploadsCommand({ Bucket: this.bucket }));
    return { objects: Contents.map(({ Key }) => Key ?? ''), uploads: Uploads.map(({ Key }) => Key ?? '') };
  }

  async stop(): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const closed = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGKILL');
    await closed;
  }

  async dispose(): Promise<void> {
    this.client.destroy();
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
