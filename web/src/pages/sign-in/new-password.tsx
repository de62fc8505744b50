import { TextField } from '../../components/form.tsx';
import { useText } from '../../i18n/text.ts';
import type { SignInTexts } from './messages/en.ts';

const lengthMin = 10;

export function NewPassword({ optional = false }: { readonly optional?: boolean }) {
  const t = useText<SignInTexts>('sign-in');
  return (
    <TextField
      name="password"
      label={t('newPassword')}
      hint={t('passwordHint', { n: lengthMin })}
      type="password"
      autoComplete="new-password"
      minLength={lengthMin}
      maxLength={200}
      optional={optional}
    />
  );
}
