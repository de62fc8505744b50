import { crc32, deflateRawSync } from 'node:zlib';

export interface WheelMember {
  readonly name: string;
  readonly content: Buffer;
  readonly deflated?: boolean;
  /** What the archive claims instead of the truth. */
  readonly claimedSize?: number;
}

/** The bytes of a wheel, which is a zip archive, with what pip wants to see in it. */
export function wheelOf(name: string, version: string, members: readonly WheelMember[]): Buffer {
  const info = `${name}-${version}.dist-info`;
  const metadata = [
    { name: `${info}/METADATA`, content: Buffer.from(`Metadata-Version: 2.1\nName: ${name}\nVersion: ${version}\n`) },
    {
      name: `${info}/WHEEL`,
      content: Buffer.from('Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n'),
    },
    {
      name: `${info}/RECORD`,
      content: Buffer.from(
        [
          ...members.map((member) => `${member.name},,`),
          `${info}/METADATA,,`,
          `${info}/WHEEL,,`,
          `${info}/RECORD,,`,
          '',
        ].join('\n'),
      ),
    },
  ];
  return zipOf([...members, ...metadata]);
}

function zipOf(members: readonly WheelMember[]): Buffer {
  const files: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const { name, content, deflated = false, claimedSize = content.length } of members) {
    const packed = deflated ? deflateRawSync(content) : content;
    const common = Buffer.alloc(26);
    common.writeUInt16LE(20, 0);
    common.writeUInt16LE(deflated ? 8 : 0, 4);
    common.writeUInt32LE(crc(content), 10);
    common.writeUInt32LE(packed.length, 14);
    common.writeUInt32LE(claimedSize, 18);
    common.writeUInt16LE(Buffer.byteLength(name), 22);
    const local = Buffer.concat([Buffer.from('PK\x03\x04', 'latin1'), common, Buffer.from(name), packed]);
    const rest = Buffer.alloc(14);
    rest.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from('PK\x01\x02\x14\x00', 'latin1'), common, rest, Buffer.from(name)]));
    files.push(local);
    offset += local.length;
  }
  const listing = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06', 'latin1');
  end.writeUInt16LE(members.length, 8);
  end.writeUInt16LE(members.length, 10);
  end.writeUInt32LE(listing.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...files, listing, end]);
}

const crc = (content: Buffer): number => crc32(content);
