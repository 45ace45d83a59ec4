"""A real SMTP server (aiosmtpd) that prints each message it accepts as a line of JSON, read by Python's own mail parser."""

import argparse
import asyncio
import email
import email.policy
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult


class Printer:
    def __init__(self, encrypted):
        self.encrypted = encrypted

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        text = message.get_body(("plain",))
        html = message.get_body(("html",))
        print(json.dumps({
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "smtputf8": envelope.smtp_utf8,
            "encrypted": self.encrypted or session.ssl is not None,
            "authenticated": bool(session.authenticated),
            "headers": {name: str(value) for name, value in message.items()},
            "defects": [repr(defect) for defect in message.defects],
            # As mail programs show it: MIME's line breaks stay as they are in base64.
            "text": text.get_content().replace("\r\n", "\n") if text else None,
            "html": html.get_content().replace("\r\n", "\n") if html else None,
        }), flush=True)
        return "250 2.0.0 Ok: queued as PY1"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tls", choices=["none", "starttls", "implicit"], default="none")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--user")
    parser.add_argument("--password")
    parser.add_argument("--login-only", action="store_true")
    options = parser.parse_args()

    context = None
    if options.tls != "none":
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(options.cert, options.key)

    def authenticate(server, session, envelope, mechanism, data):
        right = data.login == options.user.encode() and data.password == options.password.encode()
        return AuthResult(success=right, handled=False)

    arguments = {"enable_SMTPUTF8": True, "hostname": "localhost"}
    if options.tls == "starttls":
        arguments |= {"tls_context": context, "require_starttls": True}
    if options.user:
        arguments |= {
            "authenticator": authenticate,
            "auth_required": True,
            "auth_require_tls": options.tls == "starttls",
            "auth_exclude_mechanism": ["PLAIN"] if options.login_only else None,
        }

    async def serve():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: SMTP(Printer(options.tls == "implicit"), loop=loop, **arguments),
            "127.0.0.1",
            0,
            ssl=context if options.tls == "implicit" else None,
        )
        print(server.sockets[0].getsockname()[1], flush=True)
        # Until whoever started it has gone.
        await loop.run_in_executor(None, sys.stdin.read)

    asyncio.run(serve())


main()
