/** Texts of mails to users, in plain text. Users choose their names, so no line here depends on them. */
interface Words {
  readonly subject: string;
  readonly text: string;
}

const closing = (accountUrl: string): string => `\n\nTokenhouse at ${accountUrl}\n`;

export const verificationMail = (accountUrl: string, token: string, hours: number): Words => ({
  subject: 'Confirm your e-mail address',
  text:
    `Somebody, probably you, signed up with this address. To confirm it, open this link within ${hours} hours:\n\n` +
    `${accountUrl}/verify-email#${token}\n\nIf it was not you, ignore this mail: nobody can use the account without this link.` +
    closing(accountUrl),
});

export const newAddressMail = (accountUrl: string, token: string, hours: number): Words => ({
  subject: 'Confirm your new e-mail address',
  text:
    `Somebody, probably you, wants to sign in with this address from now on. To confirm it, sign in with your ` +
    `old address, and open this link in the same browser within ${hours} hours:\n\n` +
    `${accountUrl}/verify-email#${token}\n\nIf it was not you, ignore this mail: nothing changes.` +
    closing(accountUrl),
});

export const oldAddressMail = (accountUrl: string, to: string): Words => ({
  subject: 'Your e-mail address has changed',
  text:
    `You sign in with another address from now on: ${to}\n\nIf it was not you, tell the operator of this server at once: ` +
    `somebody else has taken over your account.` +
    closing(accountUrl),
});

export const resetMail = (accountUrl: string, token: string, minutes: number): Words => ({
  subject: 'Choose a new password',
  text:
    `To choose a new password, open this link within ${minutes} minutes. It can be used once:\n\n` +
    `${accountUrl}/reset-password#${token}\n\nIf you did not ask for it, ignore this mail: your password does not change.` +
    closing(accountUrl),
});

export const knownMail = (accountUrl: string): Words => ({
  subject: 'You have an account already',
  text:
    `Somebody, probably you, tried to sign up with this address, which has an account already. Sign in with your ` +
    `password; if you have forgotten it, ask for a new one.` +
    closing(accountUrl),
});

export const invitationMail = (
  accountUrl: string,
  token: string,
  { account, role, days }: { readonly account: string; readonly role: string; readonly days: number },
): Words => ({
  subject: 'You are invited',
  text:
    `You are invited to the account "${account}" as ${role}. To accept, open this link within ${days} days. It can be ` +
    `used once, with this address:\n\n${accountUrl}/invitation#${token}\n\nIf you do not expect this invitation, ignore this mail.` +
    closing(accountUrl),
});
