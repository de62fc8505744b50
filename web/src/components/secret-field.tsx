import { CopyButton } from './copy.tsx';
import { controlClass } from './form.tsx';
import styles from './secret-field.module.css';

interface SecretFieldProps {
  readonly value: string;
  /** What it is, for readers of the screen. */
  readonly label: string;
  /** On the button: "Copy the key". */
  readonly copyLabel: string;
  /** Somebody has copied it, with the button or by hand. */
  readonly onCopied?: () => void;
}

/** What is shown once: it can be copied with the button, and selected. */
export const SecretField = ({ value, label, copyLabel, onCopied }: SecretFieldProps) => (
  <div className={styles['secret']}>
    <input
      className={controlClass}
      aria-label={label}
      readOnly
      value={value}
      data-autofocus=""
      spellCheck={false}
      onFocus={(event) => event.target.select()}
      onCopy={() => onCopied?.()}
    />
    <CopyButton text={value} label={copyLabel} wide look="primary" {...(onCopied === undefined ? {} : { onCopied })} />
  </div>
);
