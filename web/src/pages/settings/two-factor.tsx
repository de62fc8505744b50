import { useState } from 'react';

import { useSession } from '../../api/session.ts';
import { useSend } from '../../api/use-api.ts';
import { Badge } from '../../components/badge.tsx';
import { Button } from '../../components/button.tsx';
import { CopyButton } from '../../components/copy.tsx';
import { Dialog } from '../../components/dialog.tsx';
import { Form, FormButtons, TextField } from '../../components/form.tsx';
import { Panel } from '../../components/page.tsx';
import { Note } from '../../components/state.tsx';
import { SaveButton } from '../../components/save-button.tsx';
import { toast } from '../../components/toast.tsx';
import { useText } from '../../i18n/text.ts';
import { QrCode } from './qr-code.tsx';
import { useRefreshMe } from './use-me.ts';
import type { SettingsTexts } from './messages/en.ts';
import styles from './settings.module.css';

/** Codes of an authenticator app after the password. */
export function TwoFactor() {
  const t = useText<SettingsTexts>('settings');
  const { me } = useSession();
  const [open, setOpen] = useState<'enable' | 'disable' | 'codes'>();
  const close = (): void => setOpen(undefined);
  const actions = !me.has_password ? undefined : me.two_factor_enabled ? (
    <>
      <Button small onClick={() => setOpen('codes')}>
        {t('newBackupCodes')}
      </Button>
      <Button small look="danger" onClick={() => setOpen('disable')}>
        {t('disableCodes')}
      </Button>
    </>
  ) : (
    <Button small onClick={() => setOpen('enable')}>
      {t('enableCodes')}
    </Button>
  );
  return (
    <Panel title={t('codes')} {...(actions === undefined ? {} : { actions })}>
      <p className={styles['state']}>
        {me.two_factor_enabled ? <Badge tone="good">{t('on')}</Badge> : <Badge>{t('off')}</Badge>}{' '}
        {t(me.two_factor_enabled ? 'codesOn' : me.has_password ? 'codesOff' : 'codesNeedPassword')}
      </p>
      {open === 'enable' && <EnableDialog onClose={close} />}
      {open === 'disable' && <DisableDialog onClose={close} />}
      {open === 'codes' && <NewCodesDialog onClose={close} />}
    </Panel>
  );
}

interface DialogProps {
  readonly onClose: () => void;
}

/** The password, the code of the app, and then the backup codes. */
function EnableDialog({ onClose }: DialogProps) {
  const t = useText<SettingsTexts>('settings');
  const begin = useSend('post', '/v1/auth/two-factor');
  const verify = useSend('post', '/v1/auth/two-factor/verify', { refreshes: ['/v1/auth/sessions'] });
  const refreshMe = useRefreshMe();
  const close = (): void => {
    if (verify.isSuccess) refreshMe();
    onClose();
  };
  if (begin.data === undefined)
    return (
      <PasswordDialog
        title={t('enableCodes')}
        text={t('enableText')}
        action={t('continue')}
        isBusy={begin.isPending}
        error={begin.error}
        onSubmit={(password) => begin.mutate({ body: { password } })}
        onClose={onClose}
      />
    );
  if (verify.isSuccess) return <BackupCodesDialog codes={begin.data.backup_codes} onClose={close} />;
  const uri = begin.data.totp_uri;
  const secret = new URL(uri).searchParams.get('secret') ?? '';
  const submit = (form: FormData): void =>
    verify.mutate({ body: { code: String(form.get('code')).replaceAll(/\s/g, '') } });
  return (
    <Dialog title={t('enableCodes')} onClose={onClose}>
      <div className={styles['setUp']}>
        <QrCode text={uri} label={t('qrLabel')} />
        <div>
          <p>{t('scan')}</p>
          <p>{t('orType')}</p>
          <div className={styles['secretText']}>
            <code>{grouped(secret)}</code>
            <CopyButton text={secret} label={t('copySecret')} />
          </div>
        </div>
      </div>
      <Form error={verify.error} onSubmit={submit}>
        <TextField
          name="code"
          label={t('code')}
          hint={t('codeHint')}
          inputMode="numeric"
          autoComplete="one-time-code"
          pattern="\s*\d{3}\s*\d{3}\s*"
          autoFocus
        />
        <FormButtons>
          <Button type="submit" look="primary" busy={verify.isPending}>
            {t('turnOn')}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

/** Blocks of four: easier to type. */
const grouped = (secret: string): string => secret.match(/.{1,4}/g)?.join(' ') ?? secret;

function DisableDialog({ onClose }: DialogProps) {
  const t = useText<SettingsTexts>('settings');
  const disable = useSend('post', '/v1/auth/two-factor/disable');
  const refreshMe = useRefreshMe();
  const submit = (password: string): void =>
    disable.mutate(
      { body: { password } },
      {
        onSuccess: () => {
          refreshMe();
          toast(t('codesDisabled'));
          onClose();
        },
      },
    );
  return (
    <PasswordDialog
      title={t('disableCodes')}
      text={t('disableText')}
      action={t('disableCodes')}
      danger
      isBusy={disable.isPending}
      error={disable.error}
      onSubmit={submit}
      onClose={onClose}
    />
  );
}

function NewCodesDialog({ onClose }: DialogProps) {
  const t = useText<SettingsTexts>('settings');
  const make = useSend('post', '/v1/auth/two-factor/backup-codes');
  if (make.data !== undefined) return <BackupCodesDialog codes={make.data.backup_codes} onClose={onClose} />;
  return (
    <PasswordDialog
      title={t('newBackupCodes')}
      text={t('newBackupCodesText')}
      action={t('newBackupCodes')}
      isBusy={make.isPending}
      error={make.error}
      onSubmit={(password) => make.mutate({ body: { password } })}
      onClose={onClose}
    />
  );
}

interface PasswordDialogProps extends DialogProps {
  readonly title: string;
  readonly text: string;
  readonly action: string;
  readonly danger?: boolean;
  readonly isBusy: boolean;
  readonly error: unknown;
  readonly onSubmit: (password: string) => void;
}

/** Before what decides who may sign in. */
function PasswordDialog({ title, text, action, danger, isBusy, error, onSubmit, onClose }: PasswordDialogProps) {
  const t = useText<SettingsTexts>('settings');
  const { me } = useSession();
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      <Form error={error} onSubmit={(form) => onSubmit(String(form.get('password')))}>
        <input type="hidden" name="email" autoComplete="username" value={me.email} readOnly />
        <TextField name="password" label={t('password')} type="password" autoComplete="current-password" autoFocus />
        <FormButtons>
          <Button type="submit" look={danger === true ? 'danger' : 'primary'} busy={isBusy}>
            {action}
          </Button>
        </FormButtons>
      </Form>
    </Dialog>
  );
}

/** Shown once: it closes only when they were copied or saved, or when the person says that they have them. */
function BackupCodesDialog({ codes, onClose }: DialogProps & { readonly codes: readonly string[] }) {
  const t = useText<SettingsTexts>('settings');
  const [isSafe, setSafe] = useState(false);
  const text = codes.join('\n');
  return (
    <Dialog title={t('backupCodes')} onClose={onClose} dismissable={isSafe}>
      <Note tone="warn">{t('backupCodesText')}</Note>
      <ul className={styles['codes']} onCopy={() => setSafe(true)}>
        {codes.map((code) => (
          <li key={code}>
            <code>{code}</code>
          </li>
        ))}
      </ul>
      <FormButtons>
        <CopyButton text={text} label={t('copyCodes')} wide look="plain" onCopied={() => setSafe(true)} />
        <SaveButton
          name="tokenhouse-backup-codes.txt"
          load={() => {
            setSafe(true);
            return Promise.resolve(new Blob([`${text}\n`], { type: 'text/plain' }));
          }}
        >
          {t('saveCodes')}
        </SaveButton>
        <Button look={isSafe ? 'primary' : 'plain'} onClick={onClose}>
          {isSafe ? t('done') : t('haveThem')}
        </Button>
      </FormButtons>
    </Dialog>
  );
}
