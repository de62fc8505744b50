import type { Translated } from '../../../i18n/text.ts';
import type { SignInTexts } from './en.ts';

const zh: Translated<SignInTexts> = {
  code: '验证码',
  codeHint: '身份验证器应用显示的六位数字，或您的一个备用验证码。',
  codeTitle: '请输入验证码',
  email: '电子邮箱',
  forgot: '忘记密码？',
  invitationOnly: '初次使用？请向已有账户的人或本服务器的运营者索取邀请。',
  or: '或',
  password: '密码',
  passkey: '使用通行密钥登录',
  provider: '使用 {name} 登录',
  providerFailed: '身份提供方未能让您登录。请重试，或换一种方式登录。',
  signIn: '登录',
  signUp: '注册',
  signUpQuestion: '还没有账户？',
};

export default zh;
