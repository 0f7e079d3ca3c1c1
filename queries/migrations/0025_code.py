from django.db import migrations, models


class Migration(migrations.Migration):
    """Uploaded code, and the hosts that code may come from."""

    dependencies = [
        ('queries', '0024_scripts'),
    ]

    operations = [
        migrations.CreateModel(
            name='UploadedCode',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('sha256', models.CharField(max_length=64, unique=True)),
                ('files', models.IntegerField()),
                ('bytes', models.BigIntegerField()),
                ('uploaded_at', models.DateTimeField()),
                ('uploaded_by', models.CharField(max_length=150)),
                ('host', models.CharField(max_length=255)),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.CreateModel(
            name='CodeHost',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('given_at', models.DateTimeField()),
                ('given_by', models.CharField(max_length=150)),
                ('taken_at', models.DateTimeField(null=True)),
                ('taken_by', models.CharField(default='', max_length=150)),
                ('host', models.CharField(max_length=255)),
            ],
            options={
                'ordering': ['host', '-given_at'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('taken_at__isnull', True)), fields=('host',), name='code_host_once')],
            },
        ),
    ]
