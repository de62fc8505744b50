import { send } from '../api/use-api.ts';

/** Browsers that cannot read a server's options as JSON are not asked; nor is there a passkey on plain HTTP beyond this computer. */
export const hasPasskeys = (): boolean => globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON !== undefined;

/** Thrown when the person, or the time, has ended the browser's question. */
export class NoPasskey extends Error {}

async function given<Credential>(asked: Promise<Credential | null>): Promise<PublicKeyCredential> {
  try {
    return (await asked) as unknown as PublicKeyCredential;
  } catch (error) {
    throw new NoPasskey(error instanceof Error ? error.message : String(error));
  }
}

/** Signs in with a passkey of this browser; resolves with whether a code is needed as well. */
export async function signInWithPasskey(): Promise<void> {
  const options = await send('post', '/v1/auth/sign-in/passkey/options');
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options as never);
  const credential = await given(navigator.credentials.get({ publicKey }));
  await send('post', '/v1/auth/sign-in/passkey', { body: { credential: credential.toJSON() } as never });
}

/** Registers a passkey of this browser for the signed-in person. */
export async function createPasskey(name?: string): Promise<void> {
  const options = await send('post', '/v1/auth/passkeys/options');
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options as never);
  const credential = await given(navigator.credentials.create({ publicKey }));
  await send('post', '/v1/auth/passkeys', {
    body: { credential: credential.toJSON(), ...(name === undefined || name === '' ? {} : { name }) } as never,
  });
}
